"""Without the extra `iceberg` the commands say how to install it, and `--help` works."""

import sys

import pytest
from click.testing import CliRunner

import kafscale.commands.export
import kafscale.commands.reconcile
import kafscale.lake.iceberg
from kafscale.commands.cli import main


@pytest.mark.parametrize("command", ["export", "reconcile"])
def test_the_extra_is_named(command: str, monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> None:
    loaded = ("kafscale.lake.iceberg", "kafscale.commands.export", "kafscale.commands.reconcile", "pyiceberg")
    for name in [one for one in sys.modules if one.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    # Importing them again replaces these, which later tests would find without their modules.
    for package, name in (
        (kafscale.lake, "iceberg"),
        (kafscale.commands, "export"),
        (kafscale.commands, "reconcile"),
    ):
        monkeypatch.setattr(package, name, getattr(package, name))
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
    done = CliRunner().invoke(main, [command, "orders", "--to", "lake"])
    assert done.exit_code == 1
    assert f"kafscale {command} needs " in done.output
    assert "pip install 'kafscale[iceberg]'" in done.output
