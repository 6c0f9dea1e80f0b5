"""A committed offset: what is stored is what is read, and nothing else is."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.committed_offset import (
    CommittedOffset,
    decode_committed_offset,
    encode_committed_offset,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"
TOPIC_ID = uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")

offsets = st.builds(
    CommittedOffset,
    topic_id=st.uuids(),
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    commit_timestamp_ms=st.integers(0, 2**63 - 1),
    expire_timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
)


@given(offsets)
def test_an_offset_reads_as_it_was_written(committed: CommittedOffset) -> None:
    assert decode_committed_offset("offset", encode_committed_offset(committed)) == committed


@given(offsets, st.data())
def test_a_cut_or_extended_offset_is_refused(committed: CommittedOffset, data: st.DataObject) -> None:
    stored = encode_committed_offset(committed)
    with pytest.raises(CorruptDataError):
        decode_committed_offset("offset", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError, match="announced"):
        decode_committed_offset("offset", stored + b"\x00")


@given(st.binary(max_size=120))
def test_noise_is_refused_or_read_but_never_crashes(data: bytes) -> None:
    try:
        committed = decode_committed_offset("offset", b"\x00\x01" + data)
    except CorruptDataError:
        return
    assert encode_committed_offset(committed) == b"\x00\x01" + data


@pytest.mark.parametrize(
    ("name", "committed"),
    [
        (
            "offset-v1",
            CommittedOffset(
                topic_id=TOPIC_ID,
                offset=2**40 + 7,
                leader_epoch=12,
                metadata="até aqui",
                commit_timestamp_ms=1_790_000_000_123,
            ),
        ),
        (
            "offset-v1-expires",
            CommittedOffset(
                topic_id=TOPIC_ID,
                offset=0,
                commit_timestamp_ms=1_790_000_000_123,
                expire_timestamp_ms=1_790_000_060_123,
            ),
        ),
    ],
)
def test_the_stored_bytes_of_version_1_stay_what_they_are(name: str, committed: CommittedOffset) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_committed_offset(name, stored) == committed
    assert encode_committed_offset(committed) == stored


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(
        UnknownFormatVersionError, match="group-offsets/7/g/orders/0: format version 2 is not"
    ):
        decode_committed_offset("group-offsets/7/g/orders/0", b"\x00\x02" + bytes(60))


def test_metadata_that_is_no_text_is_refused() -> None:
    stored = encode_committed_offset(CommittedOffset(topic_id=TOPIC_ID, offset=1, commit_timestamp_ms=0))
    with pytest.raises(CorruptDataError, match="utf-8"):
        decode_committed_offset("offset", stored[:-1] + b"\x01\xff")
