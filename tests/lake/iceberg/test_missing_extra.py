"""Without the extra `iceberg` the commands say how to install it, and `--help` works."""

import sys

import pytest
from click.testing import CliRunner

from kafscale import lake
from kafscale.commands.cli import main
from kafscale.lake import iceberg


@pytest.mark.parametrize("command", ["export", "reconcile"])
def test_the_extra_is_named(command: str, monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> None:
    loaded = ("kafscale.lake.iceberg", "kafscale.commands.export", "kafscale.commands.reconcile", "pyiceberg")
    # What is imported below becomes the package's attribute, and stays it.
    monkeypatch.setattr(lake, "iceberg", iceberg)
    for name in [one for one in sys.modules if one.startswith(loaded)]:
        parent, _, child = name.rpartition(".")
        if hasattr(sys.modules.get(parent), child):
            # A second import would leave its modules as attributes of the package.
            monkeypatch.setattr(sys.modules[parent], child, sys.modules[name])
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
    done = CliRunner().invoke(main, [command, "orders", "--to", "lake"])
    assert done.exit_code == 1
    assert f"kafscale {command} needs " in done.output
    assert "pip install 'kafscale[iceberg]'" in done.output
