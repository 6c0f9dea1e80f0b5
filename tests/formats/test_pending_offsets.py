"""Offsets in a transaction: what is stored is what is read, and nothing else is."""

import uuid
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.pending_offsets import (
    PendingOffset,
    PendingOffsets,
    decode_pending_offsets,
    encode_pending_offsets,
)
from tests.formats.transaction_values import pending_offsets

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"

COMMITTED = CommittedOffset(
    topic_id=uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"),
    offset=1_000,
    leader_epoch=3,
    metadata="half",
    commit_timestamp_ms=1_790_000_000_123,
)
VALUE = encode_committed_offset(COMMITTED)
TWO = PendingOffsets(
    transactional_id="copier-7",
    producer_epoch=3,
    offsets={("orders", 2): PendingOffset(1, VALUE), ("orders", 10): PendingOffset(2, VALUE)},
)
EMPTY = PendingOffsets(transactional_id="", producer_epoch=0, offsets={})


@given(pending_offsets)
def test_offsets_read_as_they_were_written(pending: PendingOffsets) -> None:
    assert decode_pending_offsets("pending", encode_pending_offsets(pending)) == pending


@given(pending_offsets, st.data())
def test_cut_or_extended_offsets_are_refused(pending: PendingOffsets, data: st.DataObject) -> None:
    stored = encode_pending_offsets(pending)
    with pytest.raises(CorruptDataError):
        decode_pending_offsets("pending", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError):
        decode_pending_offsets("pending", stored + b"\x00")


@given(st.binary(max_size=120))
def test_noise_is_refused_or_read_but_never_crashes(noise: bytes) -> None:
    try:
        pending = decode_pending_offsets("pending", b"\x00\x01" + noise)
    except CorruptDataError:
        return
    assert encode_pending_offsets(pending) == b"\x00\x01" + noise


@given(pending_offsets, st.data())
def test_a_changed_byte_is_refused_or_read(pending: PendingOffsets, data: st.DataObject) -> None:
    stored = bytearray(encode_pending_offsets(pending))
    stored[data.draw(st.integers(2, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_pending_offsets("pending", bytes(stored))
    except CorruptDataError:
        return
    assert encode_pending_offsets(found) == stored


@pytest.mark.parametrize(("name", "pending"), [("pending-v1-two", TWO), ("pending-v1-empty", EMPTY)])
def test_the_stored_bytes_of_version_1_stay_what_they_are(name: str, pending: PendingOffsets) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_pending_offsets(name, stored) == pending
    assert encode_pending_offsets(pending) == stored
    assert all(offset.committed(name) == COMMITTED for offset in pending.offsets.values())


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownFormatVersionError, match="pending-offsets/0/g/7: format version 9"):
        decode_pending_offsets("pending-offsets/0/g/7", b"\x00\x09" + bytes(60))


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1])
def test_a_wrong_count_costs_nothing(count: int) -> None:
    stored = encode_pending_offsets(EMPTY)[:-4] + pack(">i", count) + b"\x00" * 40
    with pytest.raises(CorruptDataError, match=f"{count} offsets in 40 bytes"):
        decode_pending_offsets("pending", stored)


@pytest.mark.parametrize(
    "places", [[("b", 0), ("a", 0)], [("a", 1), ("a", 0)], [("a", 0), ("a", 0)], [("a", -1)]]
)
def test_partitions_out_of_order_are_refused(places: list[tuple[str, int]]) -> None:
    parts = [
        encode_pending_offsets(
            PendingOffsets(transactional_id="", producer_epoch=0, offsets={place: PendingOffset(0, VALUE)})
        )
        for place in places
    ]
    head = len(encode_pending_offsets(EMPTY))
    stored = parts[0][: head - 4] + pack(">i", len(parts)) + b"".join(part[head:] for part in parts)
    with pytest.raises(CorruptDataError, match="out of order"):
        decode_pending_offsets("pending", stored)


def test_an_offset_that_cannot_be_read_is_refused() -> None:
    pending = PendingOffsets(
        transactional_id="", producer_epoch=0, offsets={("t", 0): PendingOffset(0, b"?")}
    )
    with pytest.raises(CorruptDataError, match="pending: a committed offset of 1 bytes"):
        decode_pending_offsets("pending", encode_pending_offsets(pending))
