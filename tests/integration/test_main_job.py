"""The main job with nothing configured: a large file goes in with a real client and comes back identical."""

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from tests.compat import tools
from tests.integration.conftest import StartBroker
from tests.support.audit import audit
from tests.support.nightly import by_day
from tests.support.waiting import PATIENCE_SEC

LINES = by_day(100_000, by_night=300_000)


def kcat(*arguments: str) -> bytes:
    """kcat's standard output."""
    return subprocess.run(["kcat", *arguments], check=True, capture_output=True, timeout=PATIENCE_SEC).stdout


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of log-like lines, each different; none is empty, which kcat would leave out."""
    generator = random.Random(4)
    path = tmp_path / "lines.txt"
    with path.open("w", encoding="utf-8") as out:
        for n in range(LINES):
            out.write(
                f"{n:06d} GET /products/{generator.randrange(10**9)} ünï {'x' * generator.randrange(90)}\n"
            )
    return path


def test_file_is_returned_identical_and_segments_pass_audit(start_broker: StartBroker, lines: Path) -> None:
    reason = tools.kcat_missing()
    if reason:
        pytest.skip(reason)
    broker = start_broker()
    kcat("-b", broker.bootstrap, "-P", "-t", "lines", "-p", "0", "-l", str(lines))
    read = kcat("-b", broker.bootstrap, "-C", "-t", "lines", "-p", "0", "-o", "beginning", "-e", "-q")
    assert hashlib.sha256(read).digest() == hashlib.sha256(lines.read_bytes()).digest()
    broker.stop()
    stored = [(one.offset, one.value) for one in audit(broker.data_folder).records("lines", 0)]
    assert [offset for offset, _ in stored] == list(range(LINES))
    assert b"".join((value or b"") + b"\n" for _, value in stored) == lines.read_bytes()
