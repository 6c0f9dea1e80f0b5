"""The `kafscale` command: help, version, exit codes, and one line for what is wrong."""

import logging
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafscale.commands.cli import main
from kafscale.errors import StartupError
from kafscale.settings.broker import SETTINGS, Settings
from tests.support.waiting import PATIENCE_SEC

Run = Callable[[Settings], int]


pytestmark = pytest.mark.usefixtures("logging_as_before")


def serve(monkeypatch: pytest.MonkeyPatch, run: Run, **environment: str) -> Result:
    """`kafscale serve` with another `kafscale.broker.app.run`."""
    app = types.ModuleType("kafscale.broker.app")
    app.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kafscale.broker.app", app)
    return CliRunner().invoke(main, ["serve"], env=environment)


def test_help_lists_every_setting_with_its_default() -> None:
    result = CliRunner().invoke(main, ["serve", "--help"])
    assert result.exit_code == 0
    for row in SETTINGS:
        assert f"{row.variable}  [default: {row.default}]" in result.output
        assert " ".join(row.documentation.split()) in " ".join(result.output.split())


def test_help_shows_no_secret_of_the_environment() -> None:
    secrets = {row.variable: "canary-4711" for row in SETTINGS if row.is_secret}
    assert secrets
    result = CliRunner().invoke(main, ["serve", "--help"], env=secrets)
    assert result.exit_code == 0
    assert "canary" not in result.output


def test_settings_reach_the_broker_and_its_status_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        seen.append(settings)
        return 7

    assert serve(monkeypatch, run, KAFSCALE_BROKER_ID="42").exit_code == 7
    assert [settings.broker_id for settings in seen] == [42]


def test_a_bad_setting_is_one_line_and_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Settings] = []

    def run(settings: Settings) -> int:
        started.append(settings)
        return 0

    result = serve(monkeypatch, run, KAFSCALE_SEGMENT_BYTES="4 bananas")
    assert result.exit_code == 2
    assert result.stderr.startswith("kafscale: KAFSCALE_SEGMENT_BYTES='4 bananas' is not legal")
    assert len(result.stderr.splitlines()) == 1
    assert not started


def test_a_broker_that_cannot_start_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(settings: Settings) -> int:
        raise StartupError("the folder is in use")

    result = serve(monkeypatch, run)
    assert result.exit_code == 1
    assert result.stderr == "kafscale: the folder is in use\n"


def test_containers_first_process_can_be_stopped_while_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel spares it what it has no handler for: it would end with the grace period, by force."""
    before = signal.getsignal(signal.SIGTERM)

    def run(settings: Settings) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(os, "getpid", lambda: 1)
    try:
        assert serve(monkeypatch, run).exit_code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_misspelt_setting_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    result = serve(monkeypatch, lambda settings: 0, KAFSCALE_BROKERID="1", KAFSCALE_LOG_FORMAT="json")
    assert result.exit_code == 0
    assert '"level": "WARNING"' in result.stderr
    assert "did you mean KAFSCALE_BROKER_ID" in result.stderr


@pytest.mark.parametrize(
    "command",
    [[str(Path(sys.executable).with_name("kafscale"))], [sys.executable, "-m", "kafscale"]],
    ids=["kafscale", "python -m kafscale"],
)
def test_the_command_is_installed(command: list[str]) -> None:
    told = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE_SEC
    )
    assert told.stdout == f"kafscale {version('kafscale')}\n"
    refused = subprocess.run(
        [*command, "serve"],
        env={"KAFSCALE_BROKER_ID": "-1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("kafscale: KAFSCALE_BROKER_ID='-1' is not legal")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(("level", "shown"), [("", False), ("info", False), ("debug", True)])
def test_commands_log_info_only_when_debugging(
    monkeypatch: pytest.MonkeyPatch, level: str, shown: bool
) -> None:
    def run(settings: Settings, *, as_json: bool, output: Callable[[str], None]) -> None:
        logging.getLogger("kafscale.metadata.etcd.endpoints").info("connected to etcd")
        logging.getLogger("kafscale.metadata.etcd.store").warning("etcd is not there yet")
        output("what was asked for")

    monkeypatch.setattr("kafscale.commands.exports.run", run)
    environment = {"KAFSCALE_LOG_LEVEL": level} if level else {}
    result = CliRunner().invoke(main, ["exports"], env=environment)
    assert result.exit_code == 0
    assert result.stdout == "what was asked for\n"
    assert ("connected to etcd" in result.stderr) == shown
    assert "etcd is not there yet" in result.stderr
