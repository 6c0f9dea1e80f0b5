"""The floor of the disk: what is answered is in a file, and the table has a row for each server and size."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.disk_floor import BATCH_BYTES, main, measured
from bench.noop_broker import DurableNoOp


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[DurableNoOp]:
    broker = DurableNoOp(tmp_path)
    broker.start()
    try:
        yield broker
    finally:
        broker.remove()


def test_what_is_answered_is_in_files(durable: DurableNoOp) -> None:
    size = 2048
    mb_per_sec, median_ms, _ = measured(durable, size, warm_up_sec=0.0, seconds=0.2)
    assert mb_per_sec > 0
    assert median_ms > 0
    files = [one for one in durable.folder.iterdir() if one.name.isdigit()]
    # Whole requests: the records of one at least, and what is around them.
    assert max(one.stat().st_size for one in files) > size


@pytest.mark.nightly
def test_each_server_has_a_row_for_each_size(tmp_path: Path) -> None:
    peers = ("no store", "a file and its fsync", "Kafscale")
    chosen = [argument for peer in peers for argument in ("--peer", peer)]
    done = CliRunner().invoke(
        main, ["--seconds", "0.5", "--warm-up", "0", "--work-dir", str(tmp_path), *chosen]
    )
    assert done.exit_code == 0, done.output
    rows = [line.split(" | ")[:2] for line in done.output.splitlines()[2:]]
    assert rows == [[f"| {peer}", str(size // 1024)] for peer in peers for size in BATCH_BYTES]
    assert not list(tmp_path.iterdir())
