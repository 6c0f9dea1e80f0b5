"""Records that expire between the plan of a batch and its read: the batch is planned again, the gap is recorded."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.arrow.split_columns import read_split
from kafscale.lake.iceberg.topic_table import IcebergTable
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter

RECORD = ("--on-expired", "record")


def after_retention(writer: TopicWriter, starts: list[int], work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, before each call of which the next of these log starts takes effect."""

    def late(*arguments: Any, **named: Any) -> Any:
        if starts:
            writer.move_log_start(0, starts.pop(0))
        return work(*arguments, **named)

    return late


@pytest.fixture
def topic(writer: TopicWriter) -> TopicWriter:
    for first in range(0, 40, 10):
        writer.append(0, sent(10, first=first))
    writer.append(1, sent(3))
    return writer


@pytest.mark.parametrize("place", ["plan", "read"])
def test_what_expires_before_it_is_read_is_a_gap(
    exporter: LakeExporter, topic: TopicWriter, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = [10, 25]
    if place == "plan":
        monkeypatch.setattr(IcebergTable, "write", after_retention(topic, starts, IcebergTable.write))
    else:
        late = after_retention(topic, starts, read_split)
        monkeypatch.setattr("kafscale.lake.iceberg.records.read_split", late)
    exporter.export(*RECORD)
    assert not starts
    assert exporter.stored_rows() == topic.rows()
    assert exporter.state().gaps == {0: ((0, 25),)}
    assert exporter.state().exported == {0: ((25, 40),), 1: ((0, 3),)}
    assert len(exporter.files()) == 1, "files of the batches that failed are gone"


def test_a_batch_inside_of_a_segment_leaves_out_nothing(
    exporter: LakeExporter, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The references do not show how many records it should have."""
    monkeypatch.setattr(IcebergTable, "write", after_retention(topic, [10], IcebergTable.write))
    exporter.export(*RECORD, "--starting-offsets", '{"shop.orders": {"0": 3}}')
    assert exporter.state().gaps == {0: ((3, 10),)}
    assert exporter.stored_rows() == topic.rows()


def test_without_consent_the_error_names_the_exports_option(
    exporter: LakeExporter, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IcebergTable, "write", after_retention(topic, [10], IcebergTable.write))
    done = exporter.run()
    assert done.status == 1
    assert "expired before it was exported: shop.orders-0 offsets 0 to 9" in done.text
    assert "run again with --on-expired record" in done.text
    assert not exporter.exists() or not exporter.read().rows


def test_another_failure_is_not_taken_for_expiry(
    exporter: LakeExporter, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def broken(*_: Any) -> Any:
        tries.append(1)
        raise MemoryError("no room")

    monkeypatch.setattr(IcebergTable, "write", broken)
    with pytest.raises(MemoryError):
        exporter.run(*RECORD)
    assert len(tries) == 1
