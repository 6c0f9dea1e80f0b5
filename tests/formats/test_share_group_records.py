"""The records of share groups and their members: stored bytes, round trips, and what is refused by name."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.consumer_group_record import (
    ConsumerGroupRecord,
    encode_consumer_group,
)
from kafscale.formats.consumer_member_record import (
    ConsumerMember,
    decode_consumer_member,
    encode_consumer_member,
)
from kafscale.formats.share_group_record import (
    ShareGroupRecord,
    decode_share_group,
    encode_share_group,
    is_share_group,
)
from kafscale.formats.share_member_record import (
    ShareMember,
    decode_share_member,
    encode_share_member,
    is_share_member,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"
KEY = "group-members/7/g/m"
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12)
GROUP = ShareGroupRecord(group_epoch=7, state_since_ms=1_790_000_060_000)
MEMBER = ShareMember(
    member_id="m",
    rack_id="zone-a",
    client_id="app",
    client_host="/10.0.0.7",
    subscribed_topic_names=frozenset({"orders", "returns"}),
    member_epoch=7,
    previous_member_epoch=6,
    assigned={uuid.UUID(int=1): frozenset({0, 1, 2, 5})},
)
MEMBERS = st.builds(
    ShareMember,
    member_id=st.just("m"),
    rack_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    subscribed_topic_names=st.frozensets(TEXT, max_size=4),
    member_epoch=INT32,
    previous_member_epoch=INT32,
    assigned=st.dictionaries(
        st.uuids(), st.frozensets(st.integers(0, 2**20), min_size=1, max_size=8), max_size=4
    ),
)


def _golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def test_stored_bytes_stay() -> None:
    assert encode_share_group(GROUP) == _golden("group-v3-share")
    assert decode_share_group(KEY, _golden("group-v3-share")) == GROUP
    assert encode_share_member(MEMBER) == _golden("member-v2-share")
    assert decode_share_member(KEY, "m", _golden("member-v2-share")) == MEMBER


@given(
    st.builds(ShareGroupRecord, group_epoch=st.integers(0, 2**31 - 1), state_since_ms=st.integers(0, 2**62))
)
def test_group_round_trip(record: ShareGroupRecord) -> None:
    assert decode_share_group(KEY, encode_share_group(record)) == record


@given(MEMBERS)
def test_member_round_trip(member: ShareMember) -> None:
    assert decode_share_member(KEY, "m", encode_share_member(member)) == member


@given(MEMBERS, st.data())
def test_a_damaged_member_is_refused_or_is_another(member: ShareMember, data: st.DataObject) -> None:
    encoded = bytearray(encode_share_member(member))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_share_member(KEY, "m", bytes(encoded))
    except CorruptDataError as problem:
        assert KEY in str(problem)
    else:
        assert isinstance(found, ShareMember)


@given(MEMBERS, st.data())
def test_a_member_that_is_cut_or_longer_is_refused(member: ShareMember, data: st.DataObject) -> None:
    encoded = encode_share_member(member)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for damaged in (encoded[:cut], encoded + b"\x00"):
        with pytest.raises(CorruptDataError, match=KEY):
            decode_share_member(KEY, "m", damaged)


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (b"\x00", "too short"),
        (encode_share_group(GROUP)[:-1], "has 14 bytes, not 13"),
        (encode_share_group(ShareGroupRecord(-1, 0)), "group epoch -1 is below 0"),
    ],
)
def test_a_damaged_group_is_refused(damaged: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem):
        decode_share_group(KEY, damaged)


def test_each_type_of_group_has_versions_of_its_own() -> None:
    share, consumer = encode_share_group(GROUP), encode_consumer_group(ConsumerGroupRecord(1, 2))
    assert is_share_group(share)
    assert not is_share_group(consumer)
    with pytest.raises(UnknownFormatVersionError, match="version 2 is not known"):
        decode_share_group(KEY, consumer)
    assert decode_any_group(KEY, share) == GROUP


def test_each_type_of_member_has_versions_of_its_own() -> None:
    share, consumer = encode_share_member(MEMBER), encode_consumer_member(ConsumerMember(member_id="m"))
    assert is_share_member(share)
    assert not is_share_member(consumer)
    with pytest.raises(UnknownFormatVersionError, match="version 1 is not known"):
        decode_share_member(KEY, "m", consumer)
    with pytest.raises(UnknownFormatVersionError, match="version 2 is not known"):
        decode_consumer_member(KEY, "m", share)
