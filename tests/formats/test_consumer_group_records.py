"""The records of consumer groups and their members: stored bytes, round trips, and what is refused by name."""

import re
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
    ClassicMembership,
    ConsumerMember,
    MemberState,
    decode_consumer_member,
    encode_consumer_member,
)
from kafscale.formats.group_record import GroupRecord, encode_group_record

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"
KEY = "group-members/7/g/m"
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12)
ASSIGNMENTS = st.dictionaries(
    st.uuids(), st.frozensets(st.integers(0, 2**20), min_size=1, max_size=8), max_size=4
)

GROUP = ConsumerGroupRecord(group_epoch=7, state_since_ms=1_790_000_060_000)
MEMBER = ConsumerMember(
    member_id="m",
    client_id="app",
    client_host="/10.0.0.7",
    rebalance_timeout_ms=300_000,
    subscribed_topic_names=frozenset({"orders"}),
    member_epoch=7,
    previous_member_epoch=6,
    assigned={uuid.UUID(int=1): frozenset({0, 1, 2, 5})},
)
FULL = ConsumerMember(
    member_id="m",
    instance_id="one",
    rack_id="zone-a",
    client_id="app",
    client_host="/10.0.0.7",
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=frozenset({"orders", "returns"}),
    subscribed_topic_regex="logs-.*",
    server_assignor="range",
    state=MemberState.UNREVOKED_PARTITIONS,
    member_epoch=9,
    previous_member_epoch=8,
    assigned={uuid.UUID(int=2): frozenset({3}), uuid.UUID(int=1): frozenset({0, 1})},
    pending_revocation={uuid.UUID(int=1): frozenset({2, 4})},
    classic=ClassicMembership(session_timeout_ms=45_000, protocols=(("range", b"\x00\x01"),)),
)
MEMBERS = st.builds(
    ConsumerMember,
    member_id=st.just("m"),
    instance_id=st.none() | TEXT,
    rack_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    subscribed_topic_names=st.frozensets(TEXT, max_size=4),
    subscribed_topic_regex=st.none() | TEXT,
    server_assignor=st.none() | TEXT,
    state=st.sampled_from(MemberState),
    member_epoch=INT32,
    previous_member_epoch=INT32,
    assigned=ASSIGNMENTS,
    pending_revocation=ASSIGNMENTS,
    classic=st.none()
    | st.builds(
        ClassicMembership,
        session_timeout_ms=INT32,
        protocols=st.lists(st.tuples(TEXT, st.binary(max_size=12)), max_size=3).map(tuple),
    ),
)


@given(st.builds(ConsumerGroupRecord, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)))
def test_a_group_reads_as_it_was_written(record: ConsumerGroupRecord) -> None:
    assert decode_any_group("record", encode_consumer_group(record)) == record


@given(MEMBERS)
def test_a_member_reads_as_it_was_written(member: ConsumerMember) -> None:
    assert decode_consumer_member(KEY, "m", encode_consumer_member(member)) == member


@given(MEMBERS, st.data())
def test_a_cut_or_extended_member_is_refused(member: ConsumerMember, data: st.DataObject) -> None:
    stored = encode_consumer_member(member)
    with pytest.raises(CorruptDataError, match=KEY):
        decode_consumer_member(KEY, "m", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError, match=KEY):
        decode_consumer_member(KEY, "m", stored + b"\x00")


@given(st.binary(max_size=120))
def test_noise_is_refused_or_read_but_never_crashes(data: bytes) -> None:
    try:
        decode_consumer_member(KEY, "m", b"\x00\x01" + data)
    except CorruptDataError:
        return


def test_a_classic_group_is_read_by_the_same_key() -> None:
    record = GroupRecord(generation=8, state_since_ms=1, protocol_type="consumer")
    assert decode_any_group("record", encode_group_record(record)) == record


def test_the_stored_bytes_stay_what_they_are() -> None:
    stored = bytes.fromhex((GOLDEN / "group-v2-consumer.hex").read_text())
    assert decode_any_group("group-v2-consumer", stored) == GROUP
    assert encode_consumer_group(GROUP) == stored


@pytest.mark.parametrize(("name", "member"), [("member-v1", MEMBER), ("member-v1-full", FULL)])
def test_the_stored_bytes_of_a_member_stay_what_they_are(name: str, member: ConsumerMember) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_consumer_member(name, "m", stored) == member
    assert encode_consumer_member(member) == stored


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b"\x00\x02\x01" + bytes(11), "15 bytes, not 14"),
        (b"\x00\x02\x02" + bytes(12), "type 2 of a group"),
        (b"\x00\x02\x01" + b"\xff" * 4 + bytes(8), "group epoch -1 is below 0"),
    ],
)
def test_what_is_no_record_of_a_group_is_refused_by_name(stored: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=f"groups/7/g.*{problem}"):
        decode_any_group("groups/7/g", stored)


def test_later_versions_are_refused_by_name() -> None:
    with pytest.raises(UnknownFormatVersionError, match=r"groups/7/g: format version 4 is not known"):
        decode_any_group("groups/7/g", b"\x00\x04" + bytes(13))
    with pytest.raises(UnknownFormatVersionError, match=f"{KEY}: format version 2 is not known"):
        decode_consumer_member(KEY, "m", b"\x00\x02" + bytes(60))


def test_the_examples_of_the_page_are_the_stored_bytes() -> None:
    page = (GOLDEN.parents[2] / "docs/format/consumer-group-records.md").read_text()
    examples = page.split("Example, ")[1:]
    group, member = ("".join(re.findall(r"\b(?:[0-9a-f]{2})+(?=[ …]|\b)", _hex_of(one))) for one in examples)
    assert group == encode_consumer_group(GROUP).hex()
    assert member == encode_consumer_member(MEMBER).hex()


def _hex_of(example: str) -> str:
    """The bytes of an example: its indented lines up to the column of remarks."""
    lines = [line.strip().split("   ")[0] for line in example.splitlines() if line.startswith("    ")]
    return " ".join(lines).replace("0000…0001", f"{1:032x}")
