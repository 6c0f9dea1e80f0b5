"""Streams of the data source, called in the order in which Spark calls them.

A new stream: latestOffset, initialOffset, partitions. One that resumes: partitions with the checkpoint's last end
twice, then the batch that was not committed again, if there is one, then latestOffset.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, Put
from spark_jobs.source.offset_ranges import DataLossError
from spark_jobs.source.stream_offsets import positions_of
from spark_jobs.source.stream_reader import StreamReader
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, sent
from tests.spark_jobs.support.source_queries import rows_of_partitions, stream_reader
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

Rows = list[dict[str, Any]]


class Stream:
    """A query whose checkpoint outlives its runs."""

    def __init__(self, writer: TopicWriter, topic: str | None = "events", **options: str) -> None:
        self._writer, self._topic, self._options = writer, topic, options
        self.ends: list[dict[str, Any]] = []
        self.committed = 0
        self._reader: StreamReader | None = None

    def run(self, *, dies: bool = False) -> Rows:
        """The next micro-batch; no rows when there is nothing new. `dies`: after its end was written down."""
        reader = self._reader
        if reader is None:
            reader = self._reader = stream_reader(self._writer.settings, self._topic, **self._options)
            if self.ends:
                assert reader.partitions(self._read_back(-1), self._read_back(-1)) == []
        if self.committed == len(self.ends):
            end = _as_json(reader.latestOffset())
            if self.ends and end == self.ends[-1]:
                return []
            self.ends.append(end)
        start = self._read_back(-2) if len(self.ends) > 1 else _as_json(reader.initialOffset())
        if dies:
            self.stop()
            return []
        rows = rows_of_partitions(reader, reader.partitions(start, self._read_back(-1)))
        self.committed = len(self.ends)
        return rows

    def _read_back(self, number: int) -> dict[str, Any]:
        return _as_json(self.ends[number])

    def stop(self) -> None:
        """End the run; the next one resumes."""
        if self._reader is not None:
            self._reader.stop()
        self._reader = None


def _as_json(offset: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))


def offsets(rows: Rows, partition: int = 0) -> list[int]:
    return [row["offset"] for row in rows if row["partition"] == partition]


@pytest.fixture(params=["segments", "journal"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> TopicWriter:
    """A topic of two partitions with five records in the first one."""
    topic = TopicWriter(embedded(tmp_path), "events", partitions=2)
    if request.param == "journal":
        topic.lead()
    topic.append(0, sent(5))
    return topic


def test_from_the_beginning_and_then_what_is_new(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest")
    assert stream.run() == writer.rows()
    assert stream.run() == []
    writer.append(0, sent(2, first=5))
    writer.append(1, sent(3))
    rows = stream.run()
    assert (offsets(rows), offsets(rows, 1)) == ([5, 6], [0, 1, 2])
    topic_ids = {"events": str(writer.topic_id())}
    assert stream.ends[-1] == {"$topicIds": topic_ids, "events": {"0": 7, "1": 3}}
    assert stream.run() == []
    stream.stop()


def test_a_new_stream_starts_with_what_comes(writer: TopicWriter) -> None:
    stream = Stream(writer)
    assert stream.run() == []
    writer.append(0, sent(2, first=5))
    assert offsets(stream.run()) == [5, 6]
    stream.stop()


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": '{"events":{"0":3,"1":-1}}'}, 3),
        (
            {
                "startingTimestamp": str(FIRST_TIMESTAMP_MS + 2),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            2,
        ),
    ],
)
def test_other_starts(writer: TopicWriter, options: dict[str, str], first: int) -> None:
    stream = Stream(writer, **options)
    assert offsets(stream.run()) == list(range(first, 5))
    stream.stop()


def test_a_stream_resumes_where_it_was(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest")
    stream.run()
    stream.stop()
    writer.append(0, sent(3, first=5))
    assert offsets(stream.run()) == [5, 6, 7]
    stream.stop()
    assert stream.run() == []
    stream.stop()


def test_a_micro_batch_that_was_not_committed_is_the_same_again(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest")
    stream.run()
    writer.append(0, sent(3, first=5))
    stream.run(dies=True)
    writer.append(0, sent(1, first=8))
    assert offsets(stream.run()) == [5, 6, 7]
    assert offsets(stream.run()) == [8]
    stream.stop()


@pytest.mark.parametrize(("start", "first"), [("latest", 5), ("earliest", 0)])
def test_a_stream_killed_in_its_first_batch_keeps_its_start(
    writer: TopicWriter, start: str, first: int
) -> None:
    stream = Stream(writer, startingOffsets=start)
    stream.run(dies=True)
    writer.append(0, sent(4, first=5))
    found = offsets(stream.run()) + offsets(stream.run())
    assert found == list(range(first, 9))
    stream.stop()


def test_a_limit_is_spread_over_the_partitions(writer: TopicWriter) -> None:
    writer.append(0, sent(15, first=5))
    writer.append(1, sent(10))
    stream = Stream(writer, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    seen: Rows = []
    batches = []
    while rows := stream.run():
        batches.append(len(rows))
        seen += rows
        # Where a limited stream was is known from its checkpoint alone.
        stream.stop()
    assert sorted(seen, key=lambda row: (row["partition"], row["offset"])) == writer.rows()
    assert batches == [6, 6, 6, 6, 6]
    stream.stop()


def test_a_micro_batch_waits_until_it_is_large_enough(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest", minOffsetsPerTrigger="4", maxOffsetsPerTrigger="6")
    assert offsets(stream.run()) == [0, 1, 2, 3, 4]
    writer.append(0, sent(2, first=5))
    writer.append(1, sent(1))
    assert stream.run() == []
    writer.append(1, sent(1, first=1))
    assert len(stream.run()) == 4
    writer.append(0, sent(1, first=7))
    assert stream.run() == []
    stream.stop()
    assert offsets(stream.run()) == [7], "the first one of a query does not wait"
    stream.stop()


def test_a_stream_of_what_is_available_has_an_end(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest", availableNow="true", maxOffsetsPerTrigger="2")
    seen = stream.run()
    writer.append(0, sent(1, first=5))
    _add_partition(writer)
    while rows := stream.run():
        seen += rows
    assert offsets(seen) == [0, 1, 2, 3, 4]
    stream.stop()
    assert offsets(stream.run()) == [5]
    stream.stop()


def test_asking_for_what_is_new_reads_no_object(
    writer: TopicWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write_checkpoint(0)
    stream = Stream(writer, startingOffsets="earliest")
    stream.run()
    (tmp_path / "objects").rename(tmp_path / "away")
    assert stream.run() == []
    (tmp_path / "away").rename(tmp_path / "objects")
    stream.stop()


def test_new_topics_and_partitions_are_read_from_their_beginning(writer: TopicWriter) -> None:
    stream = Stream(writer, None, subscribePattern="ev.*")
    stream.run()
    later = TopicWriter(writer.settings, "evening")
    later.append(0, sent(3))
    assert stream.run() == later.rows()
    stream.stop()


def test_a_partition_that_is_added_is_read_from_its_beginning(writer: TopicWriter) -> None:
    stream = Stream(writer)
    stream.run()
    _add_partition(writer)
    larger = TopicWriter(writer.settings, "events", partitions=3, create=False)
    larger.append(2, sent(3))
    assert stream.run() == larger.rows()
    stream.stop()


def test_a_pattern_may_match_nothing_yet(tmp_path: Path) -> None:
    TopicWriter(embedded(tmp_path), "other")
    writer = TopicWriter(embedded(tmp_path), "else")
    stream = Stream(writer, None, subscribePattern="events")
    assert stream.run() == []
    events = TopicWriter(writer.settings, "events")
    events.append(0, sent(2))
    assert stream.run() == events.rows()
    stream.stop()


def test_what_expired_before_it_was_read(writer: TopicWriter, caplog: pytest.LogCaptureFixture) -> None:
    tolerant = Stream(writer, startingOffsets="earliest", failOnDataLoss="false")
    strict = Stream(writer, startingOffsets="earliest")
    for stream in (tolerant, strict):
        stream.run()
    writer.append(0, sent(5, first=5))
    writer.append(0, sent(5, first=10))
    writer.move_log_start(0, 12)
    with pytest.raises(DataLossError, match="offsets 5 to 11 of events-0 are gone: its log starts at 12"):
        strict.run()
    assert offsets(tolerant.run()) == [12, 13, 14]
    assert "offsets 5 to 11 of events-0 are gone" in caplog.text
    for stream in (tolerant, strict):
        stream.stop()


def test_a_topic_that_is_deleted_and_comes_back(writer: TopicWriter) -> None:
    options = {"startingOffsets": "earliest", "subscribePattern": "events"}
    tolerant, strict = (
        Stream(writer, None, failOnDataLoss="false", **options),
        Stream(writer, None, **options),
    )
    for stream in (tolerant, strict):
        assert offsets(stream.run()) == [0, 1, 2, 3, 4]
    _forget(writer)
    with pytest.raises(DataLossError, match="events-0 is gone"):
        strict.run()
    assert tolerant.run() == []
    assert positions_of(tolerant.ends[-1]).positions == {}
    again = TopicWriter(writer.settings, "events", partitions=2)
    again.append(1, sent(2))
    assert tolerant.run() == again.rows()
    for stream in (tolerant, strict):
        stream.stop()


@pytest.mark.parametrize("count", [3, 5, 8])
@pytest.mark.parametrize("resumes", [False, True])
def test_a_topic_created_again_is_read_from_its_beginning(
    writer: TopicWriter, count: int, resumes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have fewer, as many or more records than were read of the earlier one."""
    tolerant = Stream(writer, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="100")
    strict = Stream(writer, startingOffsets="earliest")
    for stream in (tolerant, strict):
        assert offsets(stream.run()) == [0, 1, 2, 3, 4]
        if resumes:
            stream.stop()
    old_id, new_id = writer.topic_id(), writer.recreate()
    writer.append(0, sent(count, "new"))
    with pytest.raises(DataLossError, match=f"created again .topic id {old_id}, now {new_id}"):
        strict.run()
    assert tolerant.run() == writer.rows()
    assert "what was not read of the earlier one is gone" in caplog.text
    assert tolerant.run() == []
    for stream in (tolerant, strict):
        stream.stop()


def test_a_topic_replaced_after_the_end_was_found(writer: TopicWriter) -> None:
    """The end is of the earlier topic: nothing of either is read until the next micro-batch."""
    stream = Stream(writer, startingOffsets="earliest", failOnDataLoss="false")
    stream.run()
    writer.append(0, sent(3, first=5))
    stream.run(dies=True)
    writer.recreate()
    writer.append(0, sent(9, "new"))
    assert stream.run() == []
    assert stream.run() == writer.rows()
    stream.stop()


def test_a_checkpoint_without_ids_goes_on(writer: TopicWriter) -> None:
    stream = Stream(writer, startingOffsets="earliest")
    stream.run()
    stream.stop()
    stream.ends[-1] = {"events": stream.ends[-1]["events"]}
    assert stream.run() == []
    writer.append(0, sent(2, first=5))
    assert offsets(stream.run()) == [5, 6]
    assert positions_of(stream.ends[-1]).topic_ids == {"events": writer.topic_id()}
    stream.stop()


def test_a_stream_of_a_named_id_has_lost_another_topic(writer: TopicWriter) -> None:
    ids = json.dumps({"events": str(writer.topic_id())})
    stream = Stream(writer, startingOffsets="earliest", topicIds=ids)
    stream.run()
    writer.recreate()
    with pytest.raises(DataLossError, match="was deleted and created again: the read is of topic id"):
        stream.run()
    stream.stop()


def _forget(writer: TopicWriter) -> None:
    """Delete the topic, as the metadata store sees that."""

    async def forget(topic: StoredTopic) -> None:
        partitions = [Delete(keys.partition(writer.topic, index)) for index in range(writer.partitions)]
        await topic.metadata.transact([], [Delete(keys.topic(writer.topic)), *partitions])
        objects = [one.key async for one in topic.objects.list(f"{topic.namespace}/{writer.topic}/")]
        await topic.objects.delete(objects)

    writer.run(forget)


def _add_partition(writer: TopicWriter) -> None:
    """As CreatePartitions does it."""

    async def add(topic: StoredTopic) -> None:
        held = await topic.metadata.get(keys.topic(writer.topic))
        assert held is not None
        record = decode_topic_record(held.key, held.value)
        larger = replace(record, partition_count=record.partition_count + 1)
        first = encode_partition_record(PartitionRecord(leader_epoch=1))
        puts = [
            Put(keys.topic(writer.topic), encode_topic_record(larger)),
            Put(keys.partition(writer.topic, record.partition_count), first),
        ]
        assert (await topic.metadata.transact([], puts)).succeeded

    writer.run(add)
