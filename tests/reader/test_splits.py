"""A range of offsets divided into splits: everything once, small segments together, large ones apart."""

import pickle
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.reader.splits import (
    DEFAULT_SPLIT_BYTES,
    MIB,
    Piece,
    group_pieces,
    pieces_of,
    references_between,
)
from kafscale.reader.topic_state import PartitionLog
from tests.spark_jobs.support.memory_topic import NAMESPACE, MemoryTopic, make_segments_large, run
from tests.spark_jobs.support.planned import plan_splits
from tests.support.controlled_store import ControlledStore


def reference(base_offset: int, last_offset: int, size_bytes: int = 1000) -> SegmentReference:
    return SegmentReference(
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=last_offset - base_offset + 1,
        leader_epoch=1,
        size_bytes=size_bytes,
        max_timestamp_ms=-1,
    )


def log_of(*references: SegmentReference) -> PartitionLog:
    return PartitionLog(
        topic="events",
        topic_id=UUID(int=1),
        partition=0,
        log_start_offset=0,
        log_end_offset=references[-1].last_offset + 1 if references else 0,
        references=references,
    )


@st.composite
def logs(draw: st.DrawFn) -> PartitionLog:
    references, offset = [], 0
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.sampled_from([0, 0, 1, 50]))
        last = offset + draw(st.integers(0, 100))
        references.append(reference(offset, last, draw(st.integers(100, 15 * MIB))))
        offset = last + 1
    return log_of(*references)


@given(
    log=logs(), first=st.integers(0, 1000), count=st.integers(0, 1000), split_bytes=st.integers(1, 64 * MIB)
)
def test_every_wanted_offset_is_in_one_split(
    log: PartitionLog, first: int, count: int, split_bytes: int
) -> None:
    store = ControlledStore()
    splits = run(plan_splits(log, store, NAMESPACE, first, first + count, split_bytes=split_bytes))
    planned = [
        offset
        for split in splits
        for piece in split.pieces
        for offset in range(piece.first_offset, piece.next_offset)
    ]
    published = [offset for one in log.references for offset in range(one.base_offset, one.last_offset + 1)]
    assert planned == [offset for offset in published if first <= offset < first + count]
    for split in splits:
        assert all(piece.first_offset < piece.next_offset for piece in split.pieces)
        assert (split.topic, split.partition) == ("events", 0)
        assert split.size_bytes == sum(piece.reference.size_bytes for piece in split.pieces)
        assert split.size_bytes <= split_bytes or len(split.pieces) == 1
        assert (split.first_offset, split.next_offset) == (
            split.pieces[0].first_offset,
            split.pieces[-1].next_offset,
        )
    # Sizes are known from the references.
    assert not store.calls


def test_small_segments_share_splits_but_not_without_end() -> None:
    def groups(size_bytes: int, count: int) -> list[int]:
        pieces = [
            Piece(reference=reference(n, n, size_bytes), first_offset=n, next_offset=n + 1)
            for n in range(count)
        ]
        return [len(group) for group in group_pieces(pieces, DEFAULT_SPLIT_BYTES)]

    assert groups(4 * MIB, 40) == [16, 16, 8]
    # A request takes its time however small the segment is.
    assert groups(100, 2500) == [1024, 1024, 452]


def test_a_piece_does_not_join_a_split_and_make_it_too_large() -> None:
    sizes = [10 * MIB, 60 * MIB, MIB, MIB]
    pieces = [
        Piece(reference=reference(n, n, size), first_offset=n, next_offset=n + 1)
        for n, size in enumerate(sizes)
    ]
    found = [[piece.size_bytes for piece in group] for group in group_pieces(pieces, DEFAULT_SPLIT_BYTES)]
    assert found == [sizes[:1], sizes[1:]]


def test_references_are_chosen_by_their_offsets() -> None:
    references = [reference(0, 9), reference(10, 10), reference(20, 29)]
    assert references_between(references, 9, 11) == references[:2]
    assert references_between(references, 11, 20) == []
    assert references_between(references, 29, 100) == references[2:]
    assert references_between(references, 5, 5) == []


def test_nothing_published_is_no_split() -> None:
    assert run(plan_splits(log_of(), ControlledStore(), NAMESPACE, 0, 100)) == []


def test_splits_travel_as_pickles() -> None:
    topic = MemoryTopic()
    topic.append_segments(3)
    split = topic.split()
    assert pickle.loads(pickle.dumps(split)) == split
    assert split.epochs == topic.log().epochs


# --- large segments


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> MemoryTopic:
    """One segment of 400 records, 40 kB, that is read in chunks of 1 kB; a small one before and after it."""
    make_segments_large(monkeypatch)
    topic = MemoryTopic()
    topic.append_segments(1)
    topic.append_segments(1, records=400, value_bytes=60)
    topic.append_segments(1)
    return topic


def test_a_large_segment_is_divided_where_its_index_says(large: MemoryTopic) -> None:
    split = large.split()
    chunks = [piece for piece in split.pieces if piece.chunk is not None]
    assert len(split.pieces) == len(chunks) + 2
    assert len(chunks) > 20
    assert all(piece.size_bytes <= 4000 for piece in chunks)
    assert sum(piece.size_bytes for piece in chunks) == chunks[0].reference.size_bytes - 48
    assert [(piece.first_offset, piece.next_offset) for piece in chunks][:1] == [(5, chunks[1].first_offset)]
    assert chunks[-1].next_offset == 405
    assert large.objects.count("get", "*.index") == 1


def test_a_large_segment_fills_several_splits(large: MemoryTopic) -> None:
    splits = large.splits(split_bytes=600 * 1024)
    assert len(splits) > 3
    assert large.read(*splits) == large.values


def test_only_the_chunks_with_wanted_offsets_are_planned(large: MemoryTopic) -> None:
    (piece,) = large.split(200, 201).pieces
    assert piece.chunk is not None
    assert (piece.first_offset, piece.next_offset) == (200, 201)
    assert piece.chunk.first_offset <= 200 < piece.chunk.next_offset


@pytest.mark.parametrize("change", ["missing", "damaged", "few entries"])
def test_without_a_usable_index_the_reader_has_to_find_out(
    large: MemoryTopic, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = run(large.objects.keys("*000005.index"))
    if change == "missing":
        run(large.objects.delete([key]))
    elif change == "damaged":
        large.objects.lie("*.index", lambda data: data[:-1])
    else:
        make_segments_large(monkeypatch, chunk_bytes=100)
    pieces = large.split(100, 300).pieces
    assert [(piece.chunk, piece.first_offset, piece.next_offset) for piece in pieces] == [(None, 100, 300)]
    assert pieces[0].is_undivided


def test_the_parts_of_a_segment_that_is_read_whole() -> None:
    one = reference(10, 19)
    assert pieces_of(one, [], 0, 100) == [Piece(reference=one, first_offset=10, next_offset=20)]
    assert pieces_of(one, [], 12, 15) == [Piece(reference=one, first_offset=12, next_offset=15)]
