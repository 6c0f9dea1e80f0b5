"""Heads of entries, and fences: what is stored is what is read, and nothing else is."""

import uuid
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.journal_entry import (
    FIXED_BYTES,
    MAX_HEAD_BYTES,
    CellKind,
    EntryHead,
    EntrySlice,
    Fence,
    SliceKind,
    SliceProducer,
    body_bytes,
    decode_cell,
    encode_fence,
    encode_head,
    head_bytes,
)
from kafscale.formats.partition_transactions import BatchKind
from kafscale.formats.producer_batches import ProducerBatch

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
COUNTS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)
TIMES = st.integers(-(2**63), 2**63 - 1)

producers = st.builds(
    SliceProducer,
    producer_id=OFFSETS,
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    batch=st.builds(ProducerBatch, COUNTS, COUNTS, OFFSETS),
)
batch_kinds = st.sampled_from(BatchKind)


@st.composite
def heads(draw: st.DrawFn) -> EntryHead:
    """A legal head."""
    places = draw(st.lists(st.tuples(st.uuids(), st.integers(0, 2**31 - 1)), max_size=4, unique=True))
    sizes = draw(st.lists(st.integers(48, 2**40), min_size=len(places), max_size=len(places)))
    keys = draw(st.lists(NAMES, min_size=len(places), max_size=len(places)))
    within = [0 if key else size for key, size in zip(keys, sizes, strict=True)]
    starts = [0, *accumulate(within)]
    slices = []
    for (topic_id, partition), size, key, start in zip(sorted(places), sizes, keys, starts, strict=False):
        base_offset = draw(OFFSETS)
        kind = draw(st.sampled_from(SliceKind))
        named = draw(st.lists(producers, max_size=3))
        if kind is SliceKind.TRANSACTIONS:
            named = [replace(one, kind=draw(batch_kinds)) for one in named]
        slices.append(
            EntrySlice(
                topic_id=topic_id,
                topic=draw(NAMES),
                partition=partition,
                leader_epoch=draw(INT32),
                base_offset=base_offset,
                last_offset=base_offset + draw(COUNTS),
                record_count=draw(COUNTS),
                max_timestamp_ms=draw(TIMES),
                size_bytes=size,
                body_crc=draw(st.integers(0, 2**32 - 1)),
                start=0 if key else start,
                object_key=key,
                producers=tuple(named),
                kind=kind,
            )
        )
    sequence = draw(OFFSETS)
    return EntryHead(
        journal_id=draw(NAMES),
        broker_id=draw(INT32),
        sequence=sequence,
        committed_through=draw(st.integers(-1, sequence - 1)),
        created_ms=draw(TIMES),
        slices=tuple(slices),
    )


ONE = EntrySlice(
    topic_id=uuid.UUID(int=1),
    topic="events",
    partition=0,
    leader_epoch=3,
    base_offset=10,
    last_offset=11,
    record_count=2,
    max_timestamp_ms=1_700_000_000_000,
    size_bytes=100,
    body_crc=7,
)
HEAD = EntryHead(
    journal_id="1-a",
    broker_id=1,
    sequence=5,
    committed_through=3,
    created_ms=1_700_000_000_000,
    slices=(ONE,),
)
FENCE = Fence(journal_id="1-a", broker_id=2, sequence=5, created_ms=1_700_000_000_000)


@given(heads(), st.binary(max_size=50))
def test_a_head_is_read_as_it_was_written(head: EntryHead, slices: bytes) -> None:
    stored = encode_head(head)
    assert head_bytes("e", stored[:FIXED_BYTES]) == len(stored)
    assert decode_cell("e", stored + slices) == head
    assert body_bytes(head) == sum(one.size_bytes for one in head.slices if not one.object_key)


@given(st.builds(Fence, journal_id=NAMES, broker_id=INT32, sequence=OFFSETS, created_ms=TIMES))
def test_a_fence_is_read_as_it_was_written(fence: Fence) -> None:
    stored = encode_fence(fence)
    assert head_bytes("f", stored) == len(stored)
    assert decode_cell("f", stored) == fence


def test_the_first_bytes_stay_as_documented() -> None:
    stored = encode_head(HEAD)
    assert stored[:8] == b"KJNL" + bytes([0, 1, 0, CellKind.ENTRY])
    assert encode_fence(FENCE)[:8] == b"KJNL" + bytes([0, 1, 0, CellKind.FENCE])
    assert stored[FIXED_BYTES : FIXED_BYTES + 3] == b"1-a"
    assert stored.endswith(b"events")
    assert int.from_bytes(stored[12:16], "big") == len(stored) - FIXED_BYTES


@given(heads(), st.data())
def test_a_changed_byte_is_refused(head: EntryHead, data: st.DataObject) -> None:
    stored = bytearray(encode_head(head))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptDataError, UnknownFormatVersionError), match=r"^damaged"):
        decode_cell("damaged", bytes(stored))


@given(st.binary(max_size=300))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptDataError, UnknownFormatVersionError)):
        decode_cell("junk", data)


@pytest.mark.parametrize("size", [0, 1, FIXED_BYTES - 1, FIXED_BYTES, -1])
def test_a_part_of_a_head_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError, match="part"):
        decode_cell("part", encode_head(HEAD)[:size])


def test_an_endless_head_is_refused_before_it_is_read() -> None:
    stored = bytearray(encode_head(HEAD))
    stored[12:16] = (2**32 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptDataError, match=str(MAX_HEAD_BYTES)):
        head_bytes("endless", bytes(stored))


def test_another_version_is_named() -> None:
    stored = bytearray(encode_head(HEAD))
    stored[5] = 9
    with pytest.raises(UnknownFormatVersionError, match="9"):
        decode_cell("later", bytes(stored))


LATER = ONE._replace(topic_id=uuid.UUID(int=2), start=100)


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        pytest.param((LATER, ONE), "before", id="out of order"),
        pytest.param((ONE, ONE), "before", id="doubled"),
        pytest.param((ONE, LATER._replace(start=99)), "ends at 100", id="overlapping"),
        pytest.param((ONE._replace(start=1),), "ends at 0", id="a gap"),
        pytest.param((ONE._replace(size_bytes=47),), "shorter", id="too small"),
        pytest.param((ONE._replace(last_offset=9),), "offsets 10 to 9", id="offsets"),
        pytest.param((ONE._replace(start=5, object_key="k"),), "legal is 0", id="a start elsewhere"),
    ],
)
def test_slices_that_cannot_be_are_refused(slices: tuple[EntrySlice, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode_head(replace(HEAD, slices=slices))
