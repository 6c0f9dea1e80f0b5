"""JoinGroup over a raw connection: who gets in, when a generation begins, what each member is told."""

import uuid
from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.support.group_apis import list_groups
from tests.support.group_wire import (
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    MEMBER_ID_REQUIRED_SINCE,
    NONE,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
    subscription,
)

LEAST_SESSION_TIMEOUT_MS = 500  # tests/compat/conftest.py
MOST_SESSION_TIMEOUT_MS = 1_800_000  # Kafka's default


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- who gets in


@pytest.mark.parametrize("version", range(MEMBER_ID_REQUIRED_SINCE, 10))
def test_a_new_member_is_given_an_id_to_join_with(group: RawGroup, version: int) -> None:
    member = group.member()
    first = member.join(version)
    assert first.error_code == MEMBER_ID_REQUIRED
    assert (first.generation_id, first.leader, list(first.members)) == (-1, "", [])
    client_id, _, random_part = first.member_id.partition("-")
    assert client_id == "tests"
    assert str(uuid.UUID(random_part)) == random_part
    member.id = first.member_id
    second = member.join(version)
    assert (second.error_code, second.member_id, second.leader) == (NONE, first.member_id, first.member_id)
    assert second.generation_id == 1


@pytest.mark.parametrize("version", range(MEMBER_ID_REQUIRED_SINCE))
def test_older_versions_take_a_new_member_in_at_once(group: RawGroup, version: int) -> None:
    reply = group.member().join(version)
    assert (reply.error_code, reply.generation_id, reply.leader) == (NONE, 1, reply.member_id)
    assert reply.member_id.startswith("tests-")


@pytest.mark.parametrize("exists", [False, True], ids=["a group that is not there", "a group with members"])
def test_an_id_that_the_coordinator_did_not_give_is_unknown(group: RawGroup, exists: bool) -> None:
    if exists:
        group.stable(1)
    reply = group.member(id="invented").join()
    assert (reply.error_code, reply.member_id) == (UNKNOWN_MEMBER_ID, "invented")
    assert (group.name in list_groups(group.wire)) == exists


@pytest.mark.parametrize(
    ("timeout_ms", "error_code"),
    [
        (LEAST_SESSION_TIMEOUT_MS - 1, INVALID_SESSION_TIMEOUT),
        (LEAST_SESSION_TIMEOUT_MS, MEMBER_ID_REQUIRED),
        (MOST_SESSION_TIMEOUT_MS, MEMBER_ID_REQUIRED),
        (MOST_SESSION_TIMEOUT_MS + 1, INVALID_SESSION_TIMEOUT),
        (0, INVALID_SESSION_TIMEOUT),
        (-1, INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_session_timeout_outside_the_brokers_bounds_is_refused(
    group: RawGroup, timeout_ms: int, error_code: int
) -> None:
    assert group.member(session_timeout_ms=timeout_ms).join().error_code == error_code


def test_a_group_without_a_name_takes_no_members(group: RawGroup) -> None:
    member = group.member(protocol_name="range")
    member.group = ""
    assert member.join().error_code == INVALID_GROUP_ID
    member.id, member.generation = "somebody", 1
    assert member.sync().error_code == INVALID_GROUP_ID
    assert member.heartbeat() == INVALID_GROUP_ID
    assert member.leave() == INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        pytest.param("", {"range": b""}, id="no protocol type"),
        pytest.param("consumer", {}, id="no protocols"),
    ],
)
def test_the_first_member_must_name_a_protocol_and_its_type(
    group: RawGroup, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    reply = group.member(protocol_type=protocol_type, protocols=protocols).join()
    assert (reply.error_code, reply.member_id) == (INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize(
    ("protocol_type", "names"),
    [
        pytest.param("connect", ["range"], id="another type"),
        pytest.param("consumer", ["roundrobin"], id="no name in common"),
        pytest.param("consumer", ["sticky"], id="a name that only some support"),
        pytest.param("consumer", [], id="no name"),
    ],
)
def test_join_without_common_protocol_is_refused_harmlessly(
    group: RawGroup, protocol_type: str, names: list[str]
) -> None:
    first, second = group.member(protocols={"range": b"", "sticky": b""}), group.member()
    group.join_together([first, second])
    group.sync_together([first, second])
    reply = group.member(protocol_type=protocol_type, protocols=dict.fromkeys(names, b"")).join()
    assert (reply.error_code, reply.member_id) == (INCONSISTENT_GROUP_PROTOCOL, "")
    # nor may a member change over to that
    changed = group.member(id=second.id, protocol_type=protocol_type, protocols=dict.fromkeys(names, b""))
    refused = changed.join()
    assert (refused.error_code, refused.member_id) == (INCONSISTENT_GROUP_PROTOCOL, second.id)
    assert [first.heartbeat(), second.heartbeat()] == [NONE, NONE]


# --- pending members: those that were given an id and have not come back with it


def test_a_generation_waits_for_a_pending_member(group: RawGroup) -> None:
    (leader,) = group.stable(1)
    pending = group.member()
    pending.register()
    leader.send_join()
    assert group.await_state("PreparingRebalance").members[0].member_id == leader.id
    assert not leader.has_reply()
    pending.send_join()
    assert {one.member_id for one in leader.joined().members} == {leader.id, pending.id}
    assert pending.joined().generation_id == leader.generation == 2


def test_pending_member_is_removed_after_session_timeout(group: RawGroup) -> None:
    (leader,) = group.stable(1)
    pending = group.member(session_timeout_ms=LEAST_SESSION_TIMEOUT_MS)
    pending.register()
    leader.send_join()
    assert [one.member_id for one in leader.joined().members] == [leader.id]
    assert pending.join().error_code == UNKNOWN_MEMBER_ID


def test_a_pending_member_that_leaves_is_not_waited_for(group: RawGroup) -> None:
    (leader,) = group.stable(1)
    pending = group.member()
    pending.register()
    leader.send_join()
    group.await_state("PreparingRebalance")
    assert pending.leave() == NONE
    assert [one.member_id for one in leader.joined().members] == [leader.id]
    assert pending.join().error_code == UNKNOWN_MEMBER_ID


# --- what members are told


def test_the_leader_learns_of_all_members_and_the_others_of_none(group: RawGroup) -> None:
    members = [group.member(protocols={"range": subscription("t", user_data=b"%d" % n)}) for n in range(3)]
    replies = group.join_together(members)
    leader, *others = members
    told = replies[leader.id]
    assert (told.protocol_type, told.protocol_name, told.leader) == ("consumer", "range", leader.id)
    assert {one.member_id: (one.group_instance_id, bytes(one.metadata)) for one in told.members} == {
        member.id: (None, member.protocols["range"]) for member in members
    }
    for other in others:
        reply = replies[other.id]
        assert (reply.leader, reply.member_id, list(reply.members)) == (leader.id, other.id, [])
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        pytest.param([["b", "c"], ["c", "b"], ["c", "b"]], "c", id="the one that most prefer"),
        pytest.param(
            [["a", "b", "c"], ["c", "b"], ["a", "b", "c"]], "b", id="most prefer one that not all know"
        ),
        pytest.param([["new", "old"], ["new", "old"], ["old"]], "old", id="the only one that all know"),
    ],
)
def test_the_members_vote_for_a_protocol_that_all_know(
    group: RawGroup, wishes: list[list[str]], chosen: str
) -> None:
    members = [
        group.member(protocols={name: f"{name}{n}".encode() for name in names})
        for n, names in enumerate(wishes)
    ]
    replies = group.join_together(members)
    assert {reply.protocol_name for reply in replies.values()} == {chosen}
    # and each member's metadata is that for the chosen one
    told = replies[members[0].id].members
    assert {bytes(one.metadata) for one in told} == {f"{chosen}{n}".encode() for n in range(len(members))}


@pytest.mark.parametrize("protocol_type", ["connect", "stream", "my own protocol"])
def test_protocols_of_any_type_keep_their_metadata_byte_for_byte(group: RawGroup, protocol_type: str) -> None:
    """Connect, Streams and schema registries form groups with formats of their own."""
    everything = bytes(range(256)) * 40
    leader, other = (
        group.member(protocol_type=protocol_type, protocols={"sessioned": data, "eager": b""})
        for data in (everything, b"")
    )
    replies = group.join_together([leader, other])
    told = replies[leader.id]
    assert (told.protocol_type, told.protocol_name) == (protocol_type, "sessioned")
    assert {one.member_id: bytes(one.metadata) for one in told.members} == {
        leader.id: everything,
        other.id: b"",
    }
    assert replies[other.id].protocol_type == protocol_type
