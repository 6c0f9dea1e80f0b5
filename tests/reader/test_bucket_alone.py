"""A topic by its objects alone: what is found, and what is said of what is missing."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import CorruptDataError, OffsetsGoneError
from kafscale.formats.object_keys import index_key_of
from kafscale.reader.bucket_alone import BucketAlone
from kafscale.reader.requests import plan_of, request_of
from kafscale.reader.topic_batches import topic_batches
from kafscale.reader.topic_state import UnknownTopicError
from kafscale.tools.recovery import plan
from tests.spark_jobs.support.sent_records import Sent, batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path), "orders", partitions=2)


def ranges(writer: TopicWriter, **options: Any) -> list[tuple[int, int]]:
    found = plan_of(BucketAlone(writer.settings, "orders"), request_of("orders", **options))
    return [(one.first_offset, one.next_offset) for one in found.ranges]


def files(writer: TopicWriter) -> list[Path]:
    return sorted((writer.settings.data_dir / "objects").rglob("*"))


def remove(writer: TopicWriter, key: str) -> None:
    for name in (key, index_key_of(key)):
        (writer.settings.data_dir / "objects" / name).unlink()


def test_segments_slices_and_an_orphan(writer: TopicWriter) -> None:
    writer.append(0, sent(5))
    writer.leave_unpublished(0, sent(3, "orphan"))
    writer.new_leader(0)
    writer.append(0, [Sent(gap=1), *sent(2)])
    writer.lead()
    writer.append_entry({0: batches_of(sent(2)), 1: batches_of(sent(4))})
    assert ranges(writer) == [(0, 11), (0, 4)]
    before = files(writer)
    source = BucketAlone(writer.settings, "orders")
    planned = plan_of(source, request_of("orders"))
    read = [(one.partition, one.first_offset, one.next_offset) for one in topic_batches(source, planned)]
    assert read == [(0, 0, 5), (0, 6, 9), (0, 9, 11), (1, 0, 4)]
    assert files(writer) == before, "nothing is written"


def test_many_segments_without_their_checkpoint(writer: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild keeps what a record has no room for in a checkpoint, which is not written here."""
    monkeypatch.setattr(plan, "CHECKPOINT_SEGMENTS", 3)
    for _ in range(5):
        writer.append(0, sent(2))
    source = BucketAlone(writer.settings, "orders")
    planned = plan_of(source, request_of("orders", partitions=[0]))
    assert sum(one.next_offset - one.first_offset for one in topic_batches(source, planned)) == 10
    assert not list((writer.settings.data_dir / "objects").rglob("*.ckpt"))


def test_a_damaged_segment_is_named_if_it_is_wanted(writer: TopicWriter) -> None:
    for _ in range(3):
        writer.append(0, sent(5))
    key = writer.keys(0)[1]
    file = writer.settings.data_dir / "objects" / key
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert ranges(writer, end=5)[0] == (0, 5)
    assert ranges(writer, start=10)[0] == (10, 15)
    with pytest.raises(CorruptDataError, match=rf"{key}: .*offsets 5 to 9"):
        ranges(writer)


def test_a_hole_is_a_warning(writer: TopicWriter, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        writer.append(0, sent(5))
    remove(writer, writer.keys(0)[1])
    assert ranges(writer)[0] == (0, 15)
    assert (
        "no object has offsets 5 to 9 of orders-0: they were skipped by a new leader, or are lost"
        in caplog.text
    )


def test_a_hole_that_a_checkpoint_names_is_an_error(writer: TopicWriter) -> None:
    for _ in range(3):
        writer.append(0, sent(5))
    key = writer.keys(0)[1]
    writer.write_checkpoint(0)
    remove(writer, key)
    assert ranges(writer, end=5)[0] == (0, 5)
    with pytest.raises(OffsetsGoneError, match="offsets 5 to 9 of orders-0 are lost") as raised:
        ranges(writer)
    assert (raised.value.first_offset, raised.value.next_offset) == (5, 10)


def test_no_such_topic(writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    with pytest.raises(
        UnknownTopicError, match=r"no object of a topic 'order' in .*namespace 'default', of cluster"
    ):
        plan_of(BucketAlone(writer.settings, "order"), request_of("order"))


def test_the_bucket_is_read_once_for_a_plan_and_its_read(writer: TopicWriter) -> None:
    writer.append(0, sent(5))
    checked: list[int] = []
    source = BucketAlone(writer.settings, "orders", checked.append)
    plan_of(source, request_of("orders"))

    async def again() -> None:
        async with AsyncExitStack() as stack:
            await source.open_metadata(stack)

    asyncio.run(again())
    assert len(checked) == 1
