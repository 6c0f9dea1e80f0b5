"""The harness itself: what the topic writer writes is a topic to the project's own readers and checkers."""

import asyncio
from pathlib import Path

import pytest

from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import decode_records
from tests.formats.segments import parse_segment, verify_segment
from tests.spark_jobs.support.planned import partition_log
from tests.spark_jobs.support.sent_records import CREATE_TIME, LOG_APPEND_TIME, Batch, Sent, batches_of, sent
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.fsck import fsck, problems


def _values(writer: TopicWriter, partition: int = 0) -> dict[int, bytes | None]:
    """Every published value by its offset, read as the project's own tools read segments."""

    async def read(topic: StoredTopic) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        log = await partition_log(topic.metadata, topic.objects, topic.topic, partition)
        for key, one in zip(topic.keys_of(partition, log.references), log.references, strict=True):
            segment = parse_segment(key, await topic.objects.get_range(key, one.start, one.size_bytes))
            verify_segment(segment)
            for position, header in walk(segment.body, 0, len(segment.body), key):
                records = decode_records(segment.body[position : position + header.size_bytes], 1 << 20)
                found |= {one.offset: one.value for one in records if one.offset >= log.log_start_offset}
        return found

    return writer.run(read)


def _expected(writer: TopicWriter, partition: int = 0) -> dict[int, bytes | None]:
    return {record.offset: record.value for record in writer.stored(partition)}


@pytest.mark.parametrize("codec", Codec)
def test_what_was_appended_is_published(tmp_path: Path, codec: Codec) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    writer.append(0, sent(10), codec, batch_records=3)
    writer.append(0, sent(5, first=10), codec)
    writer.append(1, sent(3, "other"), codec)
    assert writer.log_end_offset(0) == 15
    assert _values(writer, 0) == _expected(writer, 0)
    assert _values(writer, 1) == {0: b"other-0", 1: b"other-1", 2: b"other-2"}


def test_records_keep_all_that_they_have(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    headers = (("a", b"1"), ("a", None), ("", b""))
    with_times = writer.append(0, [Sent(key=None, value=None), Sent(headers=headers, timestamp_ms=5)])
    appended = writer.append(0, [Sent(value=b"x", timestamp_ms=5)], log_append_time_ms=99)
    assert [(one.timestamp_type, one.timestamp_ms) for one in with_times] == [
        (CREATE_TIME, 1_700_000_000_000),
        (CREATE_TIME, 5),
    ]
    assert (appended[0].timestamp_type, appended[0].timestamp_ms) == (LOG_APPEND_TIME, 99)
    assert writer.rows()[1]["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "", "value": b""},
    ]


def test_gaps_orphans_and_expired_records(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    writer.append(0, [Sent(value=b"0"), Sent(value=b"3", gap=2)])
    key = writer.leave_unpublished(0, sent(4, "never published"))
    assert key.endswith(f"segment-{4:020d}.kfs")
    writer.new_leader(0)
    writer.append_batches(
        0,
        [
            Batch(records=[Sent(value=b"5", gap=1)], gap_after=3),
            Batch(records=[Sent(value=b"control")], is_control=True),
            Batch(records=[Sent(value=b"10")], codec=Codec.LZ4),
        ],
    )
    assert [record.offset for record in writer.stored()] == [0, 3, 5, 10]
    assert sorted(_values(writer)) == [0, 3, 5, 9, 10]
    writer.move_log_start(0, 5)
    assert [record.offset for record in writer.stored()] == [5, 10]
    assert sorted(_values(writer)) == [5, 9, 10]
    assert [name[-24:] for name in writer.keys(0)] == [f"{5:020d}.kfs"]


def test_merged_segments_and_checkpoints_hold_the_same_records(tmp_path: Path) -> None:
    settings = embedded(tmp_path)
    writer = TopicWriter(settings, "events")
    for start in range(0, 50, 10):
        writer.append(0, sent(10, first=start), Codec.SNAPPY)
    writer.write_checkpoint(0)
    writer.append(0, sent(10, first=50))
    expected = _expected(writer)
    writer.merge(0, 10, 39)
    assert len(writer.keys(0)) == 4
    assert _values(writer) == expected
    writer.merge(0)
    assert len(writer.keys(0)) == 1
    assert _values(writer) == expected
    folder = settings.data_dir / "objects" / "default" / "events" / "0"
    assert len(list(folder.glob("*.kfs"))) == 1


def _write_a_journal(writer: TopicWriter) -> None:
    """Segments, then slices in all the places that they come to."""
    for partition in range(2):
        writer.append(partition, sent(10), batch_records=2)
    writer.lead()
    writer.append_entry({one: batches_of(sent(4, f"{one}"), Codec.GZIP) for one in range(2)})
    writer.seal(0)
    writer.append(0, sent(3, "a"))
    writer.append(1, sent(3, "b"))
    writer.gather()
    writer.append_entry({one: batches_of(sent(4, f"more of {one}")) for one in range(2)})
    writer.consolidate()
    writer.append(1, sent(3, "behind the record"))
    writer.lose_leader(0, sent(3, "never committed"))
    writer.lead(0)
    writer.append(0, sent(3, "of the next leader"))


def test_what_is_appended_to_a_journal_is_published(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    _write_a_journal(writer)
    assert [writer.log_end_offset(partition) for partition in range(2)] == [24, 24]
    for partition in range(2):
        assert _values(writer, partition) == _expected(writer, partition)
    assert [_kinds(writer, partition) for partition in range(2)] == [
        ["kfs", "kfs", "gathered", "entry", "entry"],
        ["kfs", "gathered", "entry", "entry"],
    ]
    writer.move_log_start(1, 18)
    assert sorted(_values(writer, 1)) == list(range(18, 24))
    assert _kinds(writer, 1) == ["entry", "entry"]


def _kinds(writer: TopicWriter, partition: int) -> list[str]:
    return [key.rpartition(".")[2] for key in writer.keys(partition)]


def test_a_broker_serves_what_is_in_a_journal(tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path)
    writer = TopicWriter(embedded(broker.data_folder), "events", partitions=2)
    _write_a_journal(writer)
    _, found = fsck(broker, "--verify")
    assert problems(found) == []
    with running_broker(tmp_path) as broker, wire.connect(broker) as connected:
        for partition in range(2):
            assert dict(wire.read_all(connected, "events", partition)) == _expected(writer, partition)
    _, found = fsck(broker, "--verify")
    assert problems(found) == []


async def test_it_works_beside_an_event_loop_and_closes_the_stores(tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path)
    writer = TopicWriter(embedded(broker.data_folder), "events", partitions=2)
    writer.append(0, sent(10), batch_records=2)
    writer.append(0, sent(10, first=10))
    writer.write_checkpoint(0)
    writer.new_leader(0)
    writer.append(0, sent(10, first=20), Codec.GZIP)
    writer.merge(0)
    writer.append(1, sent(2))
    writer.append(1, sent(2))
    writer.move_log_start(1, 3)
    _, found = await asyncio.to_thread(fsck, broker, "--verify")
    assert problems(found) == []
