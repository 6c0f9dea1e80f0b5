"""Batch queries of the data source, planned and read as Spark's Python processes do it."""

from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import KafscaleError
from kafscale.lake.offset_points import SourceOptionError
from kafscale.protocol.compression import Codec
from kafscale.reader.replanning import ExpiredRangeError
from kafscale.reader.topic_state import UnknownTopicError
from spark_jobs.source.batch_reader import BatchReader
from spark_jobs.source.offset_ranges import DataLossError
from spark_jobs.source.split_rows import SplitPartition
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Sent, sent
from tests.spark_jobs.support.source_queries import batch_reader, batch_rows, rows_of_partitions
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded


@pytest.fixture(params=["segments", "journal"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> TopicWriter:
    """Two partitions with 20 and 10 records, in segments of five, or in entries."""
    topic = TopicWriter(embedded(tmp_path), "events", partitions=2)
    if request.param == "journal":
        topic.lead()
    for first in range(0, 20, 5):
        topic.append(0, sent(5, first=first), Codec.ZSTD, batch_records=2)
    topic.append(1, sent(5, "other"))
    topic.append(1, sent(5, "other", first=5))
    return topic


def offsets(rows: list[dict[str, Any]], partition: int) -> list[int]:
    return [row["offset"] for row in rows if row["partition"] == partition]


def rows(writer: TopicWriter, **options: str) -> list[dict[str, Any]]:
    return batch_rows(writer.settings, **options)


def test_everything_that_is_published(writer: TopicWriter) -> None:
    assert rows(writer) == writer.rows()


def test_without_headers(writer: TopicWriter) -> None:
    without = [{name: row[name] for name in row if name != "headers"} for row in writer.rows()]
    assert rows(writer, includeHeaders="false") == without


# --- topics


def test_a_pattern_matches_whole_names(writer: TopicWriter) -> None:
    others = [TopicWriter(writer.settings, name) for name in ("events-2", "my-events")]
    for number, other in enumerate(others):
        other.append(0, sent(3, f"other {number}"))
    found = batch_rows(writer.settings, None, subscribePattern="events.*")
    assert found == writer.rows() + others[0].rows()
    with pytest.raises(KafscaleError, match=r"no topic matches the pattern 'no\.\*'"):
        batch_rows(writer.settings, None, subscribePattern="no.*")


def test_assigned_partitions_and_no_others(writer: TopicWriter) -> None:
    assert batch_rows(writer.settings, None, assign='{"events":[1]}') == writer.rows(1)


def test_several_topics(writer: TopicWriter) -> None:
    other = TopicWriter(writer.settings, "zebras")
    other.append(0, sent(2))
    assert batch_rows(writer.settings, "zebras,events") == writer.rows() + other.rows()


def test_what_is_not_there_is_an_error_that_names_it(writer: TopicWriter) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic 'missing'"):
        batch_rows(writer.settings, "events,missing")
    with pytest.raises(UnknownTopicError, match="'events' has no partition 2: legal are 0 to 1"):
        batch_rows(writer.settings, None, assign='{"events":[0,2]}')


# --- from where to where


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, (0, 20), (0, 10)),
        ({"startingOffsets": '{"events":{"0":7,"1":-2}}'}, (7, 20), (0, 10)),
        ({"endingOffsets": '{"events":{"0":-1,"1":3}}'}, (0, 20), (0, 3)),
        (
            {
                "startingOffsets": '{"events":{"0":7,"1":9}}',
                "endingOffsets": '{"events":{"0":8,"1":9}}',
            },
            (7, 8),
            (0, 0),
        ),
        ({"startingTimestamp": str(FIRST_TIMESTAMP_MS + 8)}, (8, 20), (8, 10)),
        ({"endingTimestamp": str(FIRST_TIMESTAMP_MS + 12)}, (0, 12), (0, 10)),
        (
            {
                "startingTimestamp": str(FIRST_TIMESTAMP_MS + 12),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            (12, 20),
            (0, 0),
        ),
        (
            {"startingOffsetsByTimestamp": f'{{"events":{{"0":{FIRST_TIMESTAMP_MS + 19},"1":0}}}}'},
            (19, 20),
            (0, 10),
        ),
        (
            {"endingOffsetsByTimestamp": f'{{"events":{{"0":0,"1":{FIRST_TIMESTAMP_MS + 1}}}}}'},
            (0, 0),
            (0, 1),
        ),
    ],
)
def test_ranges(
    writer: TopicWriter, options: dict[str, str], first: tuple[int, int], second: tuple[int, int]
) -> None:
    found = rows(writer, **options)
    assert (offsets(found, 0), offsets(found, 1)) == (list(range(*first)), list(range(*second)))


def test_a_partition_without_a_record_at_the_start_time_fails(writer: TopicWriter) -> None:
    with pytest.raises(SourceOptionError, match="startingTimestamp: events-1 has no record at or after"):
        rows(writer, startingTimestamp=str(FIRST_TIMESTAMP_MS + 12))


def test_specific_offsets_name_every_partition(writer: TopicWriter) -> None:
    with pytest.raises(
        SourceOptionError, match=r"startingOffsets must name every partition once: events-1 is missing"
    ):
        rows(writer, startingOffsets='{"events":{"0":7}}')


def test_an_end_before_the_start_is_refused(writer: TopicWriter) -> None:
    points = {"startingOffsets": '{"events":{"0":7,"1":0}}', "endingOffsets": '{"events":{"0":6,"1":0}}'}
    with pytest.raises(SourceOptionError, match="events-0 would start at offset 7 and end before offset 6"):
        rows(writer, **points)


# --- what is gone


def test_a_start_that_expired_is_an_error_that_names_the_offsets(writer: TopicWriter) -> None:
    writer.move_log_start(0, 10)
    start = '{"events":{"0":3,"1":0}}'
    with pytest.raises(DataLossError, match="offsets 3 to 9 of events-0 are gone: its log starts at 10"):
        rows(writer, startingOffsets=start)
    assert rows(writer, startingOffsets=start, failOnDataLoss="false") == writer.rows()
    assert rows(writer) == writer.rows()


def test_offsets_behind_the_end_are_an_error(writer: TopicWriter) -> None:
    end = '{"events":{"0":25,"1":10}}'
    with pytest.raises(DataLossError, match="offsets 20 to 24 of events-0 are not there: its log ends at 20"):
        rows(writer, endingOffsets=end)
    assert rows(writer, endingOffsets=end, failOnDataLoss="false") == writer.rows()


def _planned_before_expiry(writer: TopicWriter, **options: str) -> tuple[BatchReader, list[SplitPartition]]:
    reader = batch_reader(writer.settings, **options)
    partitions = reader.partitions()
    writer.move_log_start(0, 12)
    return reader, [one for one in partitions if isinstance(one, SplitPartition)]


def test_offsets_that_expire_before_their_task_are_named(writer: TopicWriter) -> None:
    with pytest.raises(ExpiredRangeError, match="events"):
        rows_of_partitions(*_planned_before_expiry(writer))


def test_what_expires_before_its_task_runs_can_be_passed_over(
    writer: TopicWriter, caplog: pytest.LogCaptureFixture
) -> None:
    assert rows_of_partitions(*_planned_before_expiry(writer, failOnDataLoss="false")) == writer.rows()
    assert "failOnDataLoss is false" in caplog.text


# --- tasks


@pytest.mark.parametrize(("writer", "tasks"), [("segments", 2), ("journal", 1)], indirect=["writer"])
def test_small_segments_share_a_task(writer: TopicWriter, tasks: int) -> None:
    assert len(batch_reader(writer.settings).partitions()) == tasks


def test_more_tasks_can_be_asked_for(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    for first in range(0, 16, 2):
        writer.append(0, sent(2, first=first, value_bytes=100_000))
    writer.append(1, sent(2, value_bytes=100_000))
    assert len(batch_reader(writer.settings).partitions()) == 2
    for options in ({"minPartitions": "5"}, {"splitBytes": "450kB"}):
        reader = batch_reader(writer.settings, **options)
        partitions = reader.partitions()
        assert len(partitions) >= 5
        assert rows_of_partitions(reader, partitions) == writer.rows()


def test_an_empty_topic_has_no_tasks(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "empty")
    reader = batch_reader(writer.settings, "empty")
    assert reader.partitions() == []
    assert list(reader.read(None)) == []


# --- times that are not in order


def test_the_first_record_in_the_log_that_is_not_older(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    times = [[10, 50, 20], [15, 16, 30], [70, 5, 80]]
    for of_segment in times:
        writer.append(0, [Sent(value=b"", timestamp_ms=one) for one in of_segment], batch_records=1)

    def start(timestamp_ms: int) -> int:
        return offsets(rows(writer, startingTimestamp=str(timestamp_ms)), 0)[0]

    flat = [one for of_segment in times for one in of_segment]
    for wanted in (0, 10, 11, 50, 51, 70, 71, 80):
        assert start(wanted) == next(offset for offset, one in enumerate(flat) if one >= wanted)
    writer.merge(0)
    assert [start(wanted) for wanted in (0, 51, 71)] == [0, 6, 8]
    writer.move_log_start(0, 2)
    assert [start(wanted) for wanted in (0, 40, 71)] == [2, 6, 8]
