"""Slices of many partitions in the same objects: one request a range, everything once, in each partition's order."""

import pickle
from collections import defaultdict
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.reader.shared_splits import PlannedPartition, SharedSplit, divide, parts_of
from kafscale.reader.splits import CHUNK_BYTES, MIB, Piece, Split
from kafscale.reader.topic_state import PartitionLog


def entry(number: int) -> str:
    return f"_kafscale/default/journals/1-a/{number:020d}.entry"


def planned(partition: int, *places: tuple[str, int, int]) -> PlannedPartition:
    """A partition with slices of ten records each. A place: an object's key ("": a segment's own), start and size."""
    references = [
        SegmentReference(
            base_offset=10 * number,
            last_offset=10 * number + 9,
            record_count=10,
            leader_epoch=1,
            size_bytes=size_bytes,
            max_timestamp_ms=-1,
            object_key=key,
            start=start,
        )
        for number, (key, start, size_bytes) in enumerate(places)
    ]
    log = PartitionLog(
        topic="events",
        topic_id=UUID(int=1),
        partition=partition,
        log_start_offset=0,
        log_end_offset=10 * len(references),
        references=tuple(references),
    )
    pieces = [
        Piece(reference=one, first_offset=one.base_offset, next_offset=one.last_offset + 1)
        for one in references
    ]
    return log, pieces


def of_entries(partition: int, *entries: int, size_bytes: int = 1000) -> PlannedPartition:
    """A partition with a slice in each of these entries, which have partitions side by side."""
    return planned(partition, *((entry(one), 500 + partition * size_bytes, size_bytes) for one in entries))


def only(splits: list[Split | SharedSplit]) -> SharedSplit:
    (split,) = splits
    assert isinstance(split, SharedSplit)
    return split


def test_neighbours_are_read_with_one_request_an_object() -> None:
    split = only(divide([of_entries(partition, 7, 8, 9) for partition in range(100)], 64 * MIB))
    assert [(read.object_key, read.start, read.length, len(read.slices)) for read in split.reads] == [
        (entry(number), 500, 100_000, 100) for number in (7, 8, 9)
    ]
    assert len(split.parts) == 100
    assert split.size_bytes == 300_000


def test_what_lies_between_is_read_only_if_it_is_little() -> None:
    near = planned(0, (entry(1), 0, 1000)), planned(1, (entry(1), 30_000, 1000))
    assert [(read.start, read.length) for read in only(divide(near, MIB)).reads] == [(0, 31_000)]
    far = planned(0, (entry(1), 0, 1000)), planned(1, (entry(1), 300_000, 1000))
    assert [(read.start, read.length) for read in only(divide(far, MIB)).reads] == [
        (0, 1000),
        (300_000, 1000),
    ]


def test_a_request_is_bounded() -> None:
    partitions = [of_entries(one, 1, size_bytes=3 * MIB) for one in range(10)]
    split = only(divide(partitions, 1000 * MIB))
    assert all(read.length <= CHUNK_BYTES for read in split.reads)
    assert sum(len(read.slices) for read in split.reads) == 10


def test_splits_are_bounded() -> None:
    splits = divide([of_entries(one, *range(50), size_bytes=100_000) for one in range(10)], 4 * MIB)
    assert len(splits) == 13
    assert all(split.size_bytes <= 4 * MIB for split in splits)


def test_segments_stay_with_their_partitions() -> None:
    partitions = [
        planned(0, ("", 0, 5000), (entry(1), 0, 10), (entry(2), 0, 10)),
        planned(1, ("", 0, 5000), (entry(1), 10, 10)),
    ]
    first, second, shared = divide(partitions, MIB)
    assert [(one.partition, len(one.pieces)) for one in (first, second) if isinstance(one, Split)] == [
        (0, 1),
        (1, 1),
    ]
    assert isinstance(shared, SharedSplit)
    assert [len(read.slices) for read in shared.reads] == [2, 1]


def test_one_partition_has_segments_and_slices_in_one_split() -> None:
    (split,) = divide([planned(3, ("", 0, 5000), (entry(1), 0, 10), (entry(2), 0, 10))], MIB)
    assert isinstance(split, Split)
    assert len(split.pieces) == 3


def test_partitions_that_disagree_about_the_order_of_objects() -> None:
    partitions = [of_entries(0, 1, 2, 3), of_entries(1, 3, 2, 1)]
    split = only(divide(partitions, MIB))
    assert sum(len(read.slices) for read in split.reads) == 6
    _check_order(split)


@st.composite
def topics(draw: st.DrawFn) -> list[PlannedPartition]:
    """Slices in objects that most partitions meet in the same order."""
    found = []
    for partition in range(draw(st.integers(2, 8))):
        numbers = draw(st.lists(st.integers(0, 12), unique=True, max_size=8))
        if draw(st.integers(0, 9)):
            numbers.sort()
        places = [
            (entry(one) if one else "", partition * 40_000 if one else 0, draw(st.integers(100, 40_000)))
            for one in numbers
        ]
        found.append(planned(partition, *places))
    return found


@given(partitions=topics(), split_bytes=st.integers(64 * 1024, MIB))
def test_every_piece_is_in_one_split(partitions: list[PlannedPartition], split_bytes: int) -> None:
    wanted = sorted((log.partition, piece.first_offset) for log, pieces in partitions for piece in pieces)
    splits = divide(partitions, split_bytes)
    found = [
        (part.partition, piece.first_offset)
        for split in splits
        for part in parts_of(split)
        for piece in part.pieces
    ]
    assert sorted(found) == wanted
    for split in splits:
        if isinstance(split, SharedSplit):
            _check_order(split)
            assert pickle.loads(pickle.dumps(split)) == split


def _check_order(split: SharedSplit) -> None:
    """Each partition's pieces are read in their order, each once, within the request's range."""
    read_so_far: dict[int, int] = defaultdict(int)
    for read in split.reads:
        for one in read.slices:
            assert one.piece == read_so_far[one.part]
            read_so_far[one.part] += 1
            reference = split.parts[one.part].pieces[one.piece].reference
            assert reference.object_key == read.object_key
            assert read.start <= reference.start
            assert reference.start + reference.size_bytes <= read.start + read.length
    assert list(read_so_far.values()) == [len(split.parts[part].pieces) for part in read_so_far]
    assert len(read_so_far) == len(split.parts)
