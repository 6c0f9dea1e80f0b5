"""The group record: what is stored is what is read, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.group_record import (
    MAX_UNCOMPRESSED_BYTES,
    GroupRecord,
    GroupRecordTooLargeError,
    MemberRecord,
    decode_group_record,
    encode_group_record,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"

INT32 = st.integers(-(2**31), 2**31 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=300)

members = st.builds(
    MemberRecord,
    member_id=NAMES,
    group_instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    session_timeout_ms=INT32,
    rebalance_timeout_ms=INT32,
    protocols=st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple),
    assignment=BYTES,
)
records = st.builds(
    GroupRecord,
    generation=INT32,
    state_since_ms=st.integers(-(2**63), 2**63 - 1),
    protocol_type=st.none() | NAMES,
    protocol_name=st.none() | NAMES,
    leader=st.none() | NAMES,
    members=st.lists(members, max_size=5).map(tuple),
)

ORDERS = GroupRecord(
    generation=7,
    state_since_ms=1_790_000_000_123,
    protocol_type="consumer",
    protocol_name="range",
    leader="billing-1-0a1b2c3d",
    members=(
        MemberRecord(
            member_id="billing-1-0a1b2c3d",
            group_instance_id=None,
            client_id="billing-1",
            client_host="/10.0.0.7",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocols=(("range", b"\x00\x01topics"), ("cooperative-sticky", b"\x00\x03owned\xff")),
            assignment=b"\x00\x01first half",
        ),
        MemberRecord(
            member_id="rack-b-4e5f",
            group_instance_id="rack-b",
            client_id="",
            client_host="/::1",
            session_timeout_ms=6000,
            rebalance_timeout_ms=60_000,
            protocols=(("range", b""),),
            assignment=b"",
        ),
    ),
)
EMPTY = GroupRecord(generation=8, state_since_ms=1_790_000_060_000, protocol_type="consumer")
OFFSETS_ONLY = GroupRecord(generation=0, state_since_ms=1_790_000_060_000)


@given(records)
def test_a_record_reads_as_it_was_written(record: GroupRecord) -> None:
    assert decode_group_record("record", encode_group_record(record)) == record


@given(records, st.data())
def test_a_cut_or_extended_record_is_refused(record: GroupRecord, data: st.DataObject) -> None:
    stored = encode_group_record(record)
    with pytest.raises(CorruptDataError):
        decode_group_record("record", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError):
        decode_group_record("record", stored + b"\x00")


@given(st.sampled_from([b"\x00", b"\x01", b"\x02"]), st.binary(max_size=200))
def test_noise_is_refused_or_read_but_never_crashes(form: bytes, data: bytes) -> None:
    try:
        record = decode_group_record("record", b"\x00\x01" + form + data)
    except CorruptDataError:
        return
    assert encode_group_record(record) == b"\x00\x01\x00" + data


@pytest.mark.parametrize(
    ("name", "record"),
    [("group-v1-stable", ORDERS), ("group-v1-empty", EMPTY), ("group-v1-offsets", OFFSETS_ONLY)],
)
def test_the_stored_bytes_of_version_1_stay_what_they_are(name: str, record: GroupRecord) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_group_record(name, stored) == record
    assert encode_group_record(record) == stored


def test_compressed_record_stored_before_is_still_read() -> None:
    stored = bytes.fromhex((GOLDEN / "group-v1-compressed.hex").read_text())
    assert stored[2] == 1
    record = decode_group_record("group-v1-compressed", stored)
    assert (record.generation, record.protocol_name, len(record.members)) == (1, "range", 20)
    assert [one.member_id for one in record.members] == [f"member-{number}" for number in range(20)]
    assert {one.assignment for one in record.members} == {b"\x00\x01" + b"orders" * 10}


def test_members_that_say_the_same_take_little_room() -> None:
    metadata = b"\x00\x01" + b"".join(f"a-topic-of-many-{number}".encode() for number in range(500))
    member = MemberRecord(
        member_id="member",
        group_instance_id=None,
        client_id="client",
        client_host="/10.0.0.7",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocols=(("range", metadata),),
        assignment=metadata,
    )
    record = GroupRecord(
        generation=1,
        state_since_ms=0,
        protocol_type="consumer",
        protocol_name="range",
        leader="member",
        members=(member,) * 100,
    )
    stored = encode_group_record(record)
    assert len(stored) < 2 * len(metadata)
    assert decode_group_record("record", stored) == record


def test_a_record_that_inflates_past_the_limit_is_refused() -> None:
    """A few kilobytes that announce, and hold, a byte more than a record may have."""
    bomb = zstandard.ZstdCompressor().compress(bytes(MAX_UNCOMPRESSED_BYTES + 1))
    assert len(bomb) < 10_000
    with pytest.raises(CorruptDataError, match=r"groups/7/orders.*67108865 bytes, at most 67108864"):
        decode_group_record("groups/7/orders", b"\x00\x01\x01" + bomb)


def test_a_frame_of_untold_size_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2000))
    with pytest.raises(CorruptDataError, match="group record"):
        decode_group_record("record", b"\x00\x01\x01" + frame)


def test_a_record_that_could_not_be_read_back_is_not_written() -> None:
    member = replace(ORDERS.members[0], assignment=bytes(MAX_UNCOMPRESSED_BYTES))
    with pytest.raises(GroupRecordTooLargeError):
        encode_group_record(replace(ORDERS, members=(member,)))


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownFormatVersionError, match="groups/7/orders: format version 2 is not known"):
        decode_group_record("groups/7/orders", b"\x00\x02" + bytes(60))


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b"\x00\x01", "too short"),
        (b"\x00\x01\x07" + bytes(22), "form 7"),
        (b"\x00\x01\x00" + bytes(12) + b"\xff\xff\xff\xfe" + b"\xff" * 6, "-2 members"),
        (b"\x00\x01\x01" + b"no frame of zstd", "group record"),
        (
            b"\x00\x01\x01" + zstandard.ZstdCompressor().compress(encode_group_record(EMPTY)[3:]) + b"more",
            "group record",
        ),
    ],
)
def test_what_is_no_group_record_is_refused_by_name(stored: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=f"groups/7/orders.*{problem}"):
        decode_group_record("groups/7/orders", stored)
