"""The embedded consumer protocol: read strictly, written as clients read it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.consumer_protocol import (
    MalformedProtocolError,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
PARTITIONS = st.dictionaries(NAMES, st.frozensets(st.integers(0, 50), min_size=1), max_size=4)
SUBSCRIPTIONS = st.builds(
    Subscription,
    version=st.integers(0, 3),
    topics=st.frozensets(NAMES),
    owned=PARTITIONS,
    rack_id=st.none() | NAMES,
)


def cut(one: Subscription) -> Subscription:
    """As much of it as its version can say."""
    return Subscription(
        one.version,
        one.topics,
        one.owned if one.version >= 1 else {},
        one.rack_id if one.version >= 3 else None,
    )


@given(SUBSCRIPTIONS, st.integers(-1, 9))
def test_subscription_is_read_as_written(one: Subscription, generation: int) -> None:
    assert decode_subscription(encode_subscription(one, generation)) == cut(one)


@given(PARTITIONS, st.integers(0, 3))
def test_assignment_is_read_as_written(partitions: dict[str, frozenset[int]], version: int) -> None:
    assert decode_assignment(encode_assignment(version, partitions)) == partitions


@given(SUBSCRIPTIONS, st.data())
def test_part_of_a_subscription_is_refused(one: Subscription, data: st.DataObject) -> None:
    whole = encode_subscription(one)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MalformedProtocolError):
        decode_subscription(part)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedProtocolError:
            continue


def test_topic_without_partitions_is_not_owned() -> None:
    data = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
    assert decode_assignment(data) == {}


def test_newer_version_is_read_as_the_newest_known() -> None:
    newest = encode_subscription(Subscription(3, frozenset({"t"}), {"t": frozenset({1})}, "rack"))
    newer = b"\0\7" + newest[2:] + b"what is added later"
    assert decode_subscription(newer) == Subscription(7, frozenset({"t"}), {"t": frozenset({1})}, "rack")
    assert encode_assignment(7, {})[:2] == b"\0\3"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff" + b"\0\0\0\0" + b"\xff\xff\xff\xff",
        b"\0\0" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff",
        b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xfe",
        b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"more",
        b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff",
        b"\0\0" + b"\x7f\xff\xff\xff" + b"\0\1t",
    ],
    ids=["version", "null topics", "user data", "more", "partition below 0", "many topics"],
)
def test_malformed_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProtocolError):
        decode_assignment(data)
