"""`kafscale export` as a process: killed where it hurts most, and stopped politely."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lake.support.exporter import LakeExporter
from tests.lake.support.gated_export import Point
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter
from tests.support.nightly import nightly_but
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

REPOSITORY = Path(__file__).resolve().parents[3]


@contextlib.contextmanager
def gated(exporter: LakeExporter, folder: Path, point: Point, *more: str) -> Iterator[ServerProcess]:
    """An export that waits at the point."""
    process = ServerProcess("export", folder)
    module = "tests.lake.support.gated_export"
    environment = clean_environment() | {"PYTHONPATH": str(REPOSITORY)} | store_environment(exporter.settings)
    process.launch(
        [sys.executable, "-m", module, str(folder), point.value, *exporter.arguments(*more)], environment
    )
    try:
        wait_until((folder / "reached").exists, f"the export is at: {point}", PATIENCE_SEC)
        yield process
    finally:
        process.close()


@pytest.mark.parametrize("point", nightly_but([Point.WRITTEN, Point.COMMITTED]))
def test_a_killed_process_neither_loses_nor_repeats(
    exporter: LakeExporter, writer: TopicWriter, tmp_path: Path, point: Point
) -> None:
    writer.append(0, sent(10))
    writer.append(1, sent(3))
    with gated(exporter, tmp_path / "gate", point) as process:
        refused = exporter.run()
        assert refused.status == 1
        assert f"/{process.pid} since" in refused.text, "two exporters of one topic at once"
        process.kill9()
    assert len(exporter.read().rows) == (13 if point is Point.COMMITTED else 0)
    writer.append(0, sent(2, first=10))
    exporter.export()
    assert exporter.stored_rows() == writer.rows()


@pytest.mark.nightly
def test_sigterm_ends_it_after_the_commit(
    exporter: LakeExporter, writer: TopicWriter, tmp_path: Path
) -> None:
    for first in range(0, 3000, 1000):
        writer.append(0, sent(1000, first=first, value_bytes=700))
    with gated(exporter, tmp_path / "gate", Point.WRITTEN, "--max-batch-size", "1MiB") as process:
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "SIGTERM: stopping" in process.log_text(), "it has the signal", PATIENCE_SEC)
        (tmp_path / "gate" / "open").touch()
        assert process.wait_exit(PATIENCE_SEC) == 0
        assert "0 to 999, lag 2,000" in process.log_text()
    assert len(exporter.read().rows) == 1000
    exporter.export()
    assert exporter.stored_rows() == writer.rows()
