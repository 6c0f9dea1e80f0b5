"""Batches and streams over a journal that is ahead of the records: as fresh as the query wants it."""

from pathlib import Path
from typing import Any

import pytest

from kafscale.lake.offset_points import SourceOptionError
from spark_jobs.source.split_rows import SplitPartition
from spark_jobs.source.stream_offsets import positions_of
from tests.spark_jobs.support.sent_records import batches_of, sent
from tests.spark_jobs.support.source_queries import (
    batch_reader,
    batch_rows,
    rows_of_partitions,
    stream_reader,
)
from tests.spark_jobs.support.stored_journal import StoredJournal
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

Values = dict[tuple[int, int], bytes | None]
CONSOLIDATED = {"freshness": "consolidated"}


class Ahead:
    """A topic of three partitions: ten records of each are in segments, the journal has what is flushed."""

    def __init__(self, folder: Path) -> None:
        self.writer = TopicWriter(embedded(folder), "events", partitions=3)
        self.journal = StoredJournal()
        self.values: Values = {}
        for partition in range(3):
            for one in self.writer.append(partition, sent(10, f"p{partition}")):
                self.values[partition, one.offset] = one.value
        self.writer.run(lambda topic: self.journal.lead(topic, range(3)))

    def flush(self, *partitions: int) -> None:
        """Five records more of each of these partitions, all by default."""
        batches = {
            one: batches_of(sent(5, f"p{one}", first=self.journal.ends[one]))
            for one in partitions or range(3)
        }
        found = self.writer.run(lambda topic: self.journal.flush(topic, batches))
        self.values |= {(at, one.offset): one.value for at, stored in found.items() for one in stored}

    def consolidate(self) -> None:
        self.writer.run(lambda topic: self.journal.consolidate(topic, 0, 1, 2))

    def seal(self) -> None:
        """All of it; the entries are gone then."""
        self.writer.run(lambda topic: self.journal.seal(topic, 0, 1, 2))
        self.writer.run(self.journal.collect)

    def batch(self, **options: str) -> Values:
        return values_of(batch_rows(self.writer.settings, **options))


def values_of(rows: list[dict[str, Any]]) -> Values:
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
    return {(row["partition"], row["offset"]): row["value"] for row in rows}


@pytest.fixture
def ahead(tmp_path: Path) -> Ahead:
    """One entry is in the records, and two are behind them."""
    found = Ahead(tmp_path)
    found.flush()
    found.consolidate()
    found.flush(0, 2)
    found.flush()
    return found


def below(values: Values, ends: dict[int, int]) -> Values:
    return {place: value for place, value in values.items() if place[1] < ends[place[0]]}


def test_a_batch_has_all_that_is_published(ahead: Ahead) -> None:
    assert ahead.batch() == ahead.values


def test_a_batch_may_stop_at_what_records_say(ahead: Ahead) -> None:
    assert ahead.batch(**CONSOLIDATED) == below(ahead.values, {0: 15, 1: 15, 2: 15})


def test_named_ends_are_read_whatever_the_freshness(ahead: Ahead) -> None:
    ends = {0: 22, 1: 12, 2: 18}
    named = '{"events":{"0":22,"1":12,"2":18}}'
    assert ahead.batch(endingOffsets=named, **CONSOLIDATED) == below(ahead.values, ends)
    assert ahead.batch(endingOffsets=named) == below(ahead.values, ends)


def test_a_freshness_that_is_not_legal(ahead: Ahead) -> None:
    with pytest.raises(SourceOptionError, match="freshness='newest' is not legal: it must be published or"):
        batch_reader(ahead.writer.settings, freshness="newest")


def test_times_are_found_in_journals(ahead: Ahead) -> None:
    time = ahead.batch(startingTimestamp=str(1_700_000_000_000 + 16))
    assert time == {place: value for place, value in ahead.values.items() if place[1] >= 16}


def test_slices_that_are_sealed_before_their_task_runs(ahead: Ahead) -> None:
    reader = batch_reader(ahead.writer.settings)
    partitions = reader.partitions()
    ahead.seal()
    assert values_of(rows_of_partitions(reader, partitions)) == ahead.values
    assert ahead.batch() == ahead.values


def test_slices_that_expire_before_their_task_can_be_passed_over(
    ahead: Ahead, caplog: pytest.LogCaptureFixture
) -> None:
    reader = batch_reader(ahead.writer.settings, failOnDataLoss="false")
    partitions = [one for one in reader.partitions() if isinstance(one, SplitPartition)]
    planned = dict(ahead.values)
    ahead.seal()
    ahead.writer.run(lambda topic: topic.move_log_start(1, 20))
    ahead.flush()
    found = values_of(rows_of_partitions(reader, partitions))
    assert found == {place: value for place, value in planned.items() if place[0] != 1}
    assert "offsets 10 to 14 of partition 1 of topic 'events' are gone" in caplog.text


def test_a_stream_follows_the_journal(ahead: Ahead) -> None:
    stream = stream_reader(ahead.writer.settings, startingOffsets="earliest")
    end, start = stream.latestOffset(), stream.initialOffset()
    assert values_of(rows_of_partitions(stream, stream.partitions(start, end))) == ahead.values
    before = dict(ahead.values)
    ahead.flush(1)
    ahead.consolidate()
    ahead.flush(0)
    following = stream.latestOffset()
    found = values_of(rows_of_partitions(stream, stream.partitions(end, following)))
    assert before | found == ahead.values
    assert not before.keys() & found.keys()
    assert stream.latestOffset() == following
    stream.stop()


def test_a_stream_that_finds_nothing_new_reads_no_object(ahead: Ahead) -> None:
    stream = stream_reader(ahead.writer.settings, startingOffsets="earliest")
    end = stream.latestOffset()
    objects = ahead.writer.settings.data_dir / "objects"
    objects.rename(objects.with_name("away"))
    assert stream.latestOffset() == end
    objects.with_name("away").rename(objects)
    ahead.flush(1)
    assert positions_of(stream.latestOffset()).positions == {**positions_of(end).positions, ("events", 1): 25}
    stream.stop()


def test_a_stream_of_records_goes_on_where_a_fresher_one_was(ahead: Ahead) -> None:
    fresh = stream_reader(ahead.writer.settings, startingOffsets="earliest")
    end = fresh.latestOffset()
    fresh.stop()
    stream = stream_reader(ahead.writer.settings, startingOffsets="earliest", **CONSOLIDATED)
    assert stream.partitions(end, end) == []
    assert positions_of(stream.latestOffset()) == positions_of(end)
    ahead.flush(2)
    ahead.consolidate()
    following = stream.latestOffset()
    found = values_of(rows_of_partitions(stream, stream.partitions(end, following)))
    assert sorted(found) == [(2, offset) for offset in range(25, 30)]
    stream.stop()


def test_a_stream_of_records_reads_no_entry_to_find_its_end(ahead: Ahead) -> None:
    stream = stream_reader(ahead.writer.settings, startingOffsets="earliest", **CONSOLIDATED)
    objects = ahead.writer.settings.data_dir / "objects"
    objects.rename(objects.with_name("away"))
    assert positions_of(stream.latestOffset()).positions == {("events", one): 15 for one in range(3)}
    stream.stop()
