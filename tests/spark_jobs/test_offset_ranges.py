"""From points to offsets of each partition, what is lost on the way, and how a stream's limit is spread."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake.offset_points import (
    LogEdge,
    OffsetPoint,
    SourceOptionError,
    SpecificOffsets,
    SpecificTimestamps,
    TimestampForAll,
)
from kafscale.reader.topic_state import Logs, PartitionKey, PartitionLog, Positions
from spark_jobs.source.offset_ranges import (
    DataLossError,
    OffsetRange,
    batch_ranges,
    limit_positions,
    logs_by_key,
    loss_reporter,
    positions_at,
    stream_ranges,
    timestamps_of,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def log(key: PartitionKey, start: int, end: int) -> PartitionLog:
    return PartitionLog(
        topic=key[0],
        topic_id=UUID(int=1),
        partition=key[1],
        log_start_offset=start,
        log_end_offset=end,
        references=(),
    )


LOGS = logs_by_key([log(B0, 0, 7), log(A1, 0, 20), log(A0, 5, 10)])


def positions(
    point: OffsetPoint,
    found: dict[PartitionKey, int | None] | None = None,
    *,
    latest_without_match: bool = False,
) -> dict[PartitionKey, int]:
    return positions_at("o", point, LOGS, found or {}, latest_without_match=latest_without_match)


def one_range(key: PartitionKey, first: int, following: int) -> OffsetRange:
    return OffsetRange(topic=key[0], partition=key[1], first_offset=first, next_offset=following)


def tolerant_batch(starts: Positions, ends: Positions) -> tuple[list[OffsetRange], list[str]]:
    warnings: list[str] = []
    report = loss_reporter(fail_on_data_loss=False, warn=warnings.append)
    return batch_ranges(starts, ends, LOGS, report), warnings


def tolerant_stream(
    starts: Positions, ends: Positions, logs: Logs = LOGS
) -> tuple[list[OffsetRange], list[str]]:
    warnings: list[str] = []
    report = loss_reporter(fail_on_data_loss=False, warn=warnings.append)
    return stream_ranges(starts, ends, logs, report), warnings


# --- points


def test_the_edges_of_the_log() -> None:
    assert positions(LogEdge.EARLIEST) == {A0: 5, A1: 0, B0: 0}
    assert positions(LogEdge.LATEST) == {A0: 10, A1: 20, B0: 7}


def test_specific_offsets_and_edges_among_them() -> None:
    assert positions(SpecificOffsets({A0: -2, A1: -1, B0: 3})) == {A0: 5, A1: 20, B0: 3}


def test_every_partition_is_named_and_no_other() -> None:
    with pytest.raises(SourceOptionError) as refused:
        positions(SpecificOffsets({A0: 1, ("c", 4): 1}))
    assert str(refused.value) == (
        "option o must name every partition once: a-1, b-0 is missing, and c-4 is not among the query's "
        "partitions"
    )
    with pytest.raises(SourceOptionError, match=r"a-1, b-0 is missing$"):
        timestamps_of("o", SpecificTimestamps({A0: 1}), LOGS)


def test_which_partitions_are_looked_up_by_time() -> None:
    assert timestamps_of("o", TimestampForAll(9), LOGS) == {A0: 9, A1: 9, B0: 9}
    assert timestamps_of("o", SpecificTimestamps({A0: 1, A1: 2, B0: 3}), LOGS) == {A0: 1, A1: 2, B0: 3}
    assert timestamps_of("o", LogEdge.LATEST, LOGS) == {}


def test_times_are_the_offsets_that_were_found() -> None:
    found: dict[PartitionKey, int | None] = {A0: 6, A1: None, B0: 0}
    with pytest.raises(SourceOptionError, match="a-1 has no record at or after 9"):
        positions(TimestampForAll(9), found)
    assert positions(TimestampForAll(9), found, latest_without_match=True) == {A0: 6, A1: 20, B0: 0}


# --- a batch


def test_a_batch_leaves_out_partitions_without_anything() -> None:
    ranges, warnings = tolerant_batch({A0: 6, A1: 20, B0: 2}, {A0: 9, A1: 20, B0: 3})
    assert ranges == [one_range(A0, 6, 9), one_range(B0, 2, 3)]
    assert warnings == []


def test_a_batch_does_not_end_before_it_starts() -> None:
    with pytest.raises(SourceOptionError, match="a-1 would start at offset 8 and end before offset 7"):
        tolerant_batch({A0: 5, A1: 8, B0: 0}, {A0: 9, A1: 7, B0: 3})


@pytest.mark.parametrize(
    ("start", "end", "problem", "left"),
    [
        (2, 10, "offsets 2 to 4 of a-0 are gone: its log starts at 5", (5, 10)),
        (1, 3, "offsets 1 to 2 of a-0 are gone: its log starts at 5", None),
        (7, 12, "offsets 10 to 11 of a-0 are not there: its log ends at 10", (7, 10)),
        (11, 12, "offsets 11 to 11 of a-0 are not there: its log ends at 10", None),
    ],
)
def test_what_is_gone_is_an_error_that_names_it_or_a_warning(
    start: int, end: int, problem: str, left: tuple[int, int] | None
) -> None:
    starts, ends = {A0: start, A1: 0, B0: 0}, {A0: end, A1: 0, B0: 0}
    ranges, warnings = tolerant_batch(starts, ends)
    assert ranges == ([one_range(A0, *left)] if left else [])
    assert [one.startswith(problem) for one in warnings] == [True]

    def no_warning(text: str) -> None:
        raise AssertionError(text)

    with pytest.raises(DataLossError) as lost:
        batch_ranges(starts, ends, LOGS, loss_reporter(fail_on_data_loss=True, warn=no_warning))
    assert str(lost.value).startswith(problem)
    assert "failOnDataLoss" in str(lost.value)


# --- a stream


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert tolerant_stream({A0: 5}, {A0: 6, A1: 4}) == ([one_range(A0, 5, 6), one_range(A1, 0, 4)], [])


def test_a_new_partition_with_expired_first_records_is_a_loss() -> None:
    ranges, warnings = tolerant_stream({A1: 4}, {A0: 10, A1: 4})
    assert ranges == [one_range(A0, 5, 10)]
    assert [one.startswith("offsets 0 to 4 of a-0 are gone") for one in warnings] == [True]


def test_a_partition_that_is_gone() -> None:
    ranges, warnings = tolerant_stream({A0: 5, ("c", 0): 3}, {A0: 6})
    assert ranges == [one_range(A0, 5, 6)]
    assert [one.startswith("c-0 is gone, of which the offsets from 3 on") for one in warnings] == [True]
    ranges, warnings = tolerant_stream({("c", 0): 3}, {("c", 0): 9})
    assert ranges == []
    assert [one.startswith("c-0 is gone, of which the offsets 3 to 8") for one in warnings] == [True]


def test_a_topic_created_again_is_read_from_its_beginning() -> None:
    ranges, warnings = tolerant_stream({B0: 100}, {B0: 7})
    assert ranges == [one_range(B0, 0, 7)]
    assert [one.startswith("b-0 was read up to offset 100, but now ends at 7") for one in warnings] == [True]


def test_what_expired_while_a_stream_was_away() -> None:
    ranges, warnings = tolerant_stream({A0: 3}, {A0: 8})
    assert ranges == [one_range(A0, 5, 8)]
    assert [one.startswith("offsets 3 to 4 of a-0 are gone") for one in warnings] == [True]


# --- a stream's limit


def test_a_limit_is_spread_in_proportion() -> None:
    logs = logs_by_key([log(A0, 0, 1000), log(A1, 0, 100), log(B0, 0, 3)])
    latest = {A0: 1000, A1: 100, B0: 3}
    assert limit_positions({A0: 100, A1: 0}, latest, logs, 100) == {A0: 100 + 89, A1: 9, B0: 1}
    assert limit_positions({A0: 100, A1: 0}, latest, logs, 1003) == latest


def test_a_limit_counts_from_where_the_log_starts() -> None:
    assert limit_positions({}, {A0: 10, A1: 20}, LOGS, 5) == {A0: 6, A1: 4}


@given(
    waiting=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=6),
    limit=st.integers(1, 2**41),
)
def test_a_limit_is_kept_advances_and_ends_with_the_log(waiting: list[tuple[int, int]], limit: int) -> None:
    keys = [("t", number) for number in range(len(waiting))]
    starts = {key: start for key, (start, _) in zip(keys, waiting, strict=True)}
    latest = {key: start + size for key, (start, size) in zip(keys, waiting, strict=True)}
    logs = logs_by_key(log(key, 0, latest[key]) for key in keys)
    ends = limit_positions(starts, latest, logs, limit)
    assert all(starts[key] <= ends[key] <= latest[key] for key in keys)
    assert all(ends[key] > starts[key] for key in keys if latest[key] > starts[key])
    taken = sum(ends[key] - starts[key] for key in keys)
    # At least one of each partition is taken, so that none starves.
    assert taken <= limit + len(keys)
