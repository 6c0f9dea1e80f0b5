"""Prometheus' own view of rules: promtool, which checks them and evaluates them over given series."""

import subprocess
from pathlib import Path

import pytest

from tests.support.promtool_install import promtool_binary, promtool_missing
from tests.support.waiting import PATIENCE_SEC


def skip_without_promtool() -> None:
    """Skip the test, with the reason, where there is no promtool."""
    if (missing := promtool_missing()) is not None:
        pytest.skip(missing)


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Run it; its exit code, and its output."""
    binary = promtool_binary()
    assert binary is not None, promtool_missing()
    done = subprocess.run(
        [binary, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    return done.returncode, done.stdout
