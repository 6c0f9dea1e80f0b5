"""A commit takes no more than the limit, whole segments where it can, and starves no partition."""

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.lake.batch_size import (
    LEAST_SHARE_BYTES,
    Cut,
    Wanted,
    no_cuts,
    references_within,
    shares_of,
)
from kafscale.lake.ranges import Range
from kafscale.reader.splits import WHOLE_SEGMENT_BYTES
from kafscale.reader.topic_state import PartitionLog

MIB = 1024**2
GIB = 1024**3
OFFSETS = 1000
"""Of each segment."""
INTERVAL = 50
CHUNK = 250
"""Offsets between two cuts, and two ends of chunks."""

Segments = Sequence[tuple[PartitionLog, SegmentReference]]


def log_of(partition: int, sizes: Sequence[int]) -> PartitionLog:
    """Segments of these sizes."""
    return PartitionLog(
        topic="orders",
        topic_id=UUID(int=1),
        partition=partition,
        log_start_offset=0,
        log_end_offset=OFFSETS * len(sizes),
        references=tuple(
            SegmentReference(
                base_offset=OFFSETS * number,
                last_offset=OFFSETS * (number + 1) - 1,
                record_count=OFFSETS,
                leader_epoch=0,
                size_bytes=size_bytes,
                max_timestamp_ms=-1,
            )
            for number, size_bytes in enumerate(sizes)
        ),
    )


def wanted_of(*sizes: Sequence[int], begin: int = 0) -> dict[int, tuple[PartitionLog, Range]]:
    logs = [log_of(partition, some) for partition, some in enumerate(sizes)]
    return {log.partition: (log, (begin, log.log_end_offset)) for log in logs}


def find_cuts(segments: Segments) -> list[list[Cut]]:
    """Records of one size."""
    return [
        [
            Cut(
                one.base_offset + at,
                one.size_bytes * at // OFFSETS,
                at % CHUNK == 0 and one.size_bytes > WHOLE_SEGMENT_BYTES,
            )
            for at in range(0, OFFSETS, INTERVAL)
        ]
        for _, one in segments
    ]


def taken(wanted: Wanted, max_bytes: int, begins_at: int = 0) -> dict[int, Range]:
    return {index: share.taken for index, share in shares_of(wanted, max_bytes, find_cuts, begins_at).items()}


def test_what_fits_is_taken_without_a_look_at_indexes() -> None:
    def none(segments: Segments) -> list[Sequence[Cut]]:
        raise AssertionError(segments)

    shares = shares_of(wanted_of([MIB] * 3, [GIB]), 2 * GIB, none, 0)
    assert [one.taken for one in shares.values()] == [(0, 3000), (0, 1000)]


def test_merged_partitions_stay_within_the_limit() -> None:
    """25 GiB where a commit took a segment of each partition at least."""
    shares = shares_of(wanted_of(*[[256 * MIB]] * 100), 4 * GIB, find_cuts, 0)
    assert len(shares) == 100
    assert sum(one.size_bytes for one in shares.values()) <= 4 * GIB + 100 * 256 * MIB * INTERVAL // OFFSETS
    assert sum(one.size_bytes for one in shares.values()) > 3 * GIB


def test_a_large_segment_is_divided_where_chunks_end() -> None:
    assert taken(wanted_of([GIB]), 600 * MIB) == {0: (0, 500)}
    assert taken(wanted_of([GIB], begin=500), 300 * MIB) == {0: (500, 750)}
    assert taken(wanted_of([GIB]), 100 * MIB) == {0: (0, 50)}, "there is no room for a chunk"


def test_small_segments_are_taken_whole() -> None:
    assert taken(wanted_of([10 * MIB] * 10), 35 * MIB) == {0: (0, 3000)}
    assert taken(wanted_of([10 * MIB] * 10), 4 * MIB) == {0: (0, 400)}, "not one of them fits"


def test_at_least_one_interval_is_taken() -> None:
    assert taken(wanted_of([GIB]), MIB) == {0: (0, INTERVAL)}


def test_a_segment_without_an_index_is_taken_whole() -> None:
    shares = shares_of(wanted_of([GIB, GIB]), MIB, no_cuts, 0)
    assert [one.taken for one in shares.values()] == [(0, 1000)]


def test_records_of_unequal_size_are_measured_by_the_index() -> None:
    def at_the_end(segments: Segments) -> list[list[Cut]]:
        """Nearly all bytes are in the last records of a segment."""
        return [[Cut(0, 0, False), Cut(900, 10 * MIB, False), Cut(950, GIB // 2, False)] for _ in segments]

    shares = shares_of(wanted_of([GIB], begin=800), 600 * MIB, at_the_end, 0)
    assert [one.taken for one in shares.values()] == [(800, 950)]


def test_partitions_that_do_not_fit_come_in_turn() -> None:
    partitions = 10
    left = dict(wanted_of(*[[GIB]] * partitions))
    limit, turn, served = 3 * LEAST_SHARE_BYTES, 0, []
    for _ in range(4):
        shares = shares_of(left, limit, find_cuts, turn)
        assert len(shares) == 3
        served += list(shares)
        turn = list(shares)[-1] + 1
        for index, share in shares.items():
            left[index] = (left[index][0], (share.taken[1], OFFSETS))
    assert served == [*range(10), 0, 1]


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 60 * MIB), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(3 * MIB, 400 * MIB),
    st.integers(0, 9),
)
def test_commits_within_the_limit_bring_everything_once(
    sizes: list[list[int]], max_bytes: int, turn: int
) -> None:
    left: Wanted = wanted_of(*sizes)
    whole = sum(map(sum, sizes))
    waits = dict.fromkeys(left, 0)
    commits = 0
    while left:
        shares = shares_of(left, max_bytes, find_cuts, turn)
        assert shares, "every commit takes something"
        intervals = sum(-(-max(sizes[index]) * INTERVAL // OFFSETS) + 1 for index in shares)
        assert sum(share.size_bytes for share in shares.values()) <= max_bytes + intervals
        turn = list(shares)[-1] + 1
        after = {}
        for index, (log, (first, following)) in left.items():
            waits[index] = 0 if index in shares else waits[index] + 1
            assert waits[index] <= len(sizes), "no partition starves"
            reached = shares[index].taken[1] if index in shares else first
            assert index not in shares or shares[index].taken[0] == first < reached <= following
            if references_within(log, (reached, following)) and reached < following:
                after[index] = (log, (reached, following))
        left = after
        commits += 1
    assert commits <= OFFSETS // INTERVAL * len(sizes) * 4 and whole
