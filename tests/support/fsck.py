"""`kafscale fsck` on the stores of a broker, with its settings."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.broker import KafscaleBroker
from tests.support.waiting import PATIENCE_SEC

CLEAN, PROBLEMS = 0, 3


def fsck(broker: KafscaleBroker, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit status, which is one of these two, and the output."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "kafscale"), "fsck", "--json", *arguments],
        env=broker.environment(),
        cwd=broker.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )
    assert done.returncode in (CLEAN, PROBLEMS), done.stderr
    fields = json.loads(done.stdout)
    assert isinstance(fields, dict)
    return done.returncode, fields


def problems(fields: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Kind and key of every finding that must not be."""
    found = [*fields["findings"], *(one for part in fields["partitions"] for one in part["findings"])]
    return [(one["kind"], one["key"]) for one in found if one["severity"] == "problem"]
