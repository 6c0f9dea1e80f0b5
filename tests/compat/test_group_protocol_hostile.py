"""Requests that no client sends: cut off, with false lengths, and names of all kinds."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import (
    Committed,
    commit,
    committed,
    delete_groups,
    delete_offsets,
    describe,
    find_coordinator,
    list_groups,
)
from tests.support.group_wire import NONE, Member, RawGroup, leave, raw_group, subscription
from tests.support.wire import ConnectionEndedError, Wire, connect

HEADER_BYTES = 8  # API key, version, correlation id; then the client id, and from there on any byte may lie


class _RecordedError(Exception):
    """Carries the frame that was to be sent."""


class Recorder(Wire):
    """Stands in for a connection where only the bytes of a request are wanted."""

    def __init__(self) -> None:
        self._correlation_id = 0

    def send_bytes(self, data: bytes) -> None:
        raise _RecordedError(data)


def someone(wire: Wire) -> Member:
    return Member(wire=wire, group="group", id="member", generation=1, protocol_name="range")


OFFSETS = {("topic", 0): Committed(offset=1, metadata="metadata")}

# name of the API -> its lowest and highest version that is promised, and a call that says something everywhere
APIS: dict[str, tuple[int, int, Callable[[Wire, int], Any]]] = {
    "OffsetCommit": (2, 8, lambda wire, version: commit(wire, "group", OFFSETS, version=version)),
    "OffsetFetch": (1, 8, lambda wire, version: committed(wire, "group", OFFSETS, version)),
    "FindCoordinator": (0, 4, lambda wire, version: find_coordinator(wire, ["group"], 0, version)),
    "JoinGroup": (0, 7, lambda wire, version: someone(wire).join(version)),
    "Heartbeat": (0, 4, lambda wire, version: someone(wire).heartbeat(version)),
    "LeaveGroup": (0, 4, lambda wire, version: leave(wire, "group", [("member", "instance")], version)),
    "SyncGroup": (0, 5, lambda wire, version: someone(wire).sync({"member": b"assigned"}, version)),
    "DescribeGroups": (0, 5, lambda wire, version: describe(wire, ["group"], version)),
    "ListGroups": (4, 5, lambda wire, version: list_groups(wire, states=["Stable"], version=version)),
    "DeleteGroups": (0, 2, lambda wire, version: delete_groups(wire, ["group"], version)),
    "OffsetDelete": (0, 0, lambda wire, version: delete_offsets(wire, "group", OFFSETS)),
}
VERSIONS = sorted({(name, version) for name, (low, high, _) in APIS.items() for version in (low, high)})


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


def request_bytes(name: str, version: int) -> bytes:
    """A request as it goes over the wire, without its length."""
    with pytest.raises(_RecordedError) as recorded:
        APIS[name][2](Recorder(), version)
    data: bytes = recorded.value.args[0]
    return data[4:]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def is_refused(broker: Peer, data: bytes) -> bool:
    """True if the broker ends the connection on which those bytes are a frame."""
    with connect(broker) as wire:
        wire.send_bytes(framed(data))
        try:
            wire.receive_frame()
        except ConnectionEndedError:
            return True
        return False


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_truncated_request_closes_only_its_connection(
    group: RawGroup, broker: Peer, name: str, version: int
) -> None:
    (member,) = group.stable(1)
    whole = request_bytes(name, version)
    assert not is_refused(broker, whole)
    body_begins = HEADER_BYTES + 2 + len(b"tests")
    for length in {len(whole) - 1, (len(whole) + body_begins) // 2, body_begins}:
        assert is_refused(broker, whole[:length]), f"{length} of {len(whole)} bytes"
    assert member.heartbeat() == NONE
    assert bytes(member.sync().assignment) == member.id.encode()


@pytest.mark.parametrize("filling", [b"\xff", b"\x7f"], ids=["ones", "large lengths"])
@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_a_body_of_garbage_ends_only_its_connection(
    group: RawGroup, broker: Peer, name: str, version: int, filling: bytes
) -> None:
    (member,) = group.stable(1)
    body_begins = HEADER_BYTES + 2 + len(b"tests")
    assert is_refused(broker, request_bytes(name, version)[:body_begins] + filling * 300)
    assert member.heartbeat() == NONE


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="two billion"),
        pytest.param(struct.pack(">i", 100_000_000) + bytes(1000), id="a hundred million empty ones"),
        pytest.param(struct.pack(">i", -1), id="less than none"),
    ],
)
@pytest.mark.parametrize("name", ["DescribeGroups", "DeleteGroups"])
def test_list_longer_than_its_request_closes_connection(broker: Peer, name: str, body: bytes) -> None:
    header = request_bytes(name, 0)[: HEADER_BYTES + 2 + len(b"tests")]
    assert is_refused(broker, header + body)


# --- names


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("  ", id="blanks"),
        pytest.param("../../etc", id="a path"),
        pytest.param("/", id="a slash"),
        pytest.param("a:b%2F*?[]{}'\"\\;--", id="signs"),
        pytest.param("line\nbreak\ttab", id="control characters"),
        pytest.param("group\x00null", id="a null character"),
        pytest.param("grüße 你好 \U0001f980", id="other scripts"),
        pytest.param("x" * 10_000, id="ten thousand letters"),
    ],
)
def test_a_group_may_have_any_name(group: RawGroup, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    own, near = f"{group.name}{name}", f"{group.name}{name}/"
    member = group.member(group=own)
    member.enter()
    assert member.sync({member.id: b"assigned"}).error_code == NONE
    assert member.commit({(topic, 0): 5}) == {(topic, 0): NONE}
    commit(group.wire, near, {(topic, 0): 6})
    assert list_groups(group.wire)[own].group_state == "Stable"
    (described,) = describe(group.wire, [own])
    assert (described.group_id, described.group_state) == (own, "Stable")
    assert find_coordinator(group.wire, [own])[own].error_code == NONE
    assert member.leave() == NONE
    assert committed(group.wire, own) == {(topic, 0): Committed(offset=5)}
    # another one, whose name merely begins alike, keeps its own
    assert delete_groups(group.wire, [own]) == {own: NONE}
    assert committed(group.wire, own) == {}
    assert committed(group.wire, near) == {(topic, 0): Committed(offset=6)}
    assert delete_groups(group.wire, [near]) == {near: NONE}


def test_names_of_instances_protocols_and_types_may_be_anything(group: RawGroup) -> None:
    odd = "/../\x00 \U0001f980 '\"%"
    member = group.member(instance=odd, protocol_type=odd, protocols={odd: b"\x00\xff"})
    told = member.enter()
    assert (told.protocol_type, told.protocol_name) == (odd, odd)
    assert told.members[0].group_instance_id == odd
    assert bytes(member.sync({member.id: b"\x00"}).assignment) == b"\x00"
    described = group.describe()
    assert (described.protocol_type, described.protocol_data) == (odd, odd)
    again = group.member(instance=odd, protocol_type=odd, protocols=member.protocols)
    assert again.enter().generation_id == member.generation
    assert bytes(again.sync().assignment) == b"\x00"


def test_a_large_group_state_is_kept(group: RawGroup) -> None:
    """A subscription to thousands of topics, and what is assigned of it."""
    large = bytes(range(256)) * 400
    metadata = subscription("topic", user_data=large)
    members = [group.member(protocols={"range": metadata}) for _ in range(2)]
    group.join_together(members)
    leader, other = members
    other.send_sync()
    assert bytes(leader.sync({member.id: large for member in members}).assignment) == large
    assert bytes(other.receive_sync().assignment) == large
    assert {bytes(one.member_metadata) for one in group.describe().members} == {metadata}


@pytest.mark.usefixtures("only_kafscale")  # on Kafka 4.1 the coordinator trips over it and the members wait
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(struct.pack(">hi", 0, 2**31 - 1), id="two billion topics"),
        pytest.param(struct.pack(">hih", 0, 1, 32_000), id="a topic that is cut off"),
        pytest.param(b"\xff" * 100, id="ones"),
        pytest.param(bytes(range(256)) * 400, id="a hundred kilobytes"),
    ],
)
def test_a_group_forms_whatever_its_consumers_subscriptions_are(group: RawGroup, metadata: bytes) -> None:
    members = group.stable(2, protocols={"range": metadata})
    assert [member.heartbeat() for member in members] == [NONE, NONE]
