"""Every version of the group APIs that is promised, each with what it says and what it cannot say."""

from collections.abc import Iterator

import pytest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import (
    NEVER_COMMITTED,
    Committed,
    commit,
    committed,
    fetch_offsets_request,
)
from tests.support.group_wire import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    MEMBER_ID_REQUIRED_SINCE,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
    unique_instance,
)

# API key -> lowest and highest version that must be served
PROMISED = {
    8: (2, 8),  # OffsetCommit
    9: (1, 8),  # OffsetFetch
    10: (0, 4),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    42: (0, 2),  # DeleteGroups
    47: (0, 0),  # OffsetDelete
}


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


def versions(api_key: int) -> range:
    low, high = PROMISED[api_key]
    return range(low, high + 1)


def test_all_of_them_are_advertised(group: RawGroup) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    reply = group.wire.call(request, ApiVersionsResponse, 2)
    served = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
    for key, (low, high) in PROMISED.items():
        assert served[key][0] <= low, f"API {key}: lowest version {served[key][0]}"
        assert served[key][1] >= high, f"API {key}: highest version {served[key][1]}"


# --- membership


@pytest.mark.parametrize("version", versions(11))
def test_join_group(group: RawGroup, version: int) -> None:
    member = group.member(instance=unique_instance() if version >= 5 else None)
    if version == MEMBER_ID_REQUIRED_SINCE:
        member.id = member.join(version).member_id
    reply = member.join(version)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (NONE, 1, "range")
    assert reply.leader == reply.member_id == member.id
    (row,) = reply.members
    assert (row.member_id, bytes(row.metadata)) == (member.id, member.protocols["range"])
    if version >= 2:
        assert reply.throttle_time_ms == 0
    if version >= 5:
        assert row.group_instance_id == member.instance
        assert member.id.startswith(f"{member.instance}-")
    if version >= 7:
        assert reply.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(11))
def test_join_group_refused(group: RawGroup, version: int) -> None:
    reply = group.member(id="invented").join(version)
    assert (reply.error_code, reply.member_id) == (UNKNOWN_MEMBER_ID, "invented")
    assert (reply.generation_id, reply.leader, list(reply.members)) == (-1, "", [])
    # KIP-559: from version 7 on there may be no protocol
    assert reply.protocol_name == ("" if version < 7 else None)


@pytest.mark.parametrize("version", versions(14))
def test_sync_group(group: RawGroup, version: int) -> None:
    (member,) = group.joined(1)
    reply = member.sync({member.id: b"\x00\x01assigned"}, version)
    assert (reply.error_code, bytes(reply.assignment)) == (NONE, b"\x00\x01assigned")
    if version >= 1:
        assert reply.throttle_time_ms == 0
    if version >= 5:
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    refused = member.sync(None, version, generation_id=7)
    assert (refused.error_code, bytes(refused.assignment)) == (ILLEGAL_GENERATION, b"")
    if version >= 5:
        assert (refused.protocol_type, refused.protocol_name) == (None, None)


@pytest.mark.parametrize("version", versions(12))
def test_heartbeat(group: RawGroup, version: int) -> None:
    (member,) = group.stable(1)
    request = HeartbeatRequest(
        group_id=group.name, generation_id=member.generation, member_id=member.id, group_instance_id=None
    )
    reply = group.wire.call(request, HeartbeatResponse, version)
    assert reply.error_code == NONE
    if version >= 1:
        assert reply.throttle_time_ms == 0
    assert member.heartbeat(version, generation=7) == ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(13))
def test_leave_group(group: RawGroup, version: int) -> None:
    leaving, staying = group.stable(2)
    identity = LeaveGroupRequest.MemberIdentity(member_id=leaving.id, group_instance_id=None)
    request = LeaveGroupRequest(group_id=group.name, member_id=leaving.id, members=[identity])
    reply = group.wire.call(request, LeaveGroupResponse, version)
    assert reply.error_code == NONE
    if version >= 1:
        assert reply.throttle_time_ms == 0
    if version >= 3:
        assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [
            (leaving.id, None, NONE)
        ]
    assert staying.heartbeat() == REBALANCE_IN_PROGRESS
    assert leaving.leave(version) == UNKNOWN_MEMBER_ID


def test_members_of_all_versions_are_one_group(group: RawGroup) -> None:
    """Clients are upgraded one after the other, and libraries differ in what they speak."""
    members = {version: group.member() for version in versions(11)}
    first = members[0]
    assert first.join(0).error_code == NONE
    first.protocol_name = "range"
    assert first.sync({}).error_code == NONE
    for version, member in members.items():
        if version >= MEMBER_ID_REQUIRED_SINCE:
            required = member.join(version)
            assert required.error_code == MEMBER_ID_REQUIRED
            member.id = required.member_id
        if member is not first:
            member.send_join(version)
    group.await_members(len(members))
    first.send_join(0)
    replies = [member.receive_join(version) for version, member in members.items()]
    assert {(one.error_code, one.generation_id, one.leader) for one in replies} == {(NONE, 2, first.id)}
    assert {one.member_id for one in replies[0].members} == {member.id for member in members.values()}
    for version, member in members.items():
        if member is not first:
            member.send_sync(None, min(version, 5))
    assigned = {member.id: member.id.encode() for member in members.values()}
    assert bytes(first.sync(assigned, 0).assignment) == assigned[first.id]
    for version, member in list(members.items())[1:]:
        assert bytes(member.receive_sync(min(version, 5)).assignment) == assigned[member.id]
    assert [member.heartbeat(min(version, 4)) for version, member in members.items()] == [NONE] * len(members)


# --- offsets


@pytest.mark.parametrize("version", versions(8))
def test_offset_commit(group: RawGroup, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=2)
    sent = Committed(offset=2**40, leader_epoch=5, metadata="said")
    # the retention that versions 2 to 4 ask for is accepted
    result = commit(group.wire, group.name, {(topic, 0): sent}, retention_ms=86_400_000, version=version)
    assert result == {(topic, 0): NONE}
    kept = sent if version >= 6 else Committed(offset=2**40, metadata="said")
    assert committed(group.wire, group.name) == {(topic, 0): kept}
    (member,) = group.stable(1)
    assert member.commit({(topic, 1): 3}, version=version) == {(topic, 1): NONE}
    refused = member.commit({(topic, 1): 4}, version=version, generation=7)
    assert refused == {(topic, 1): ILLEGAL_GENERATION}
    empty = OffsetCommitRequest(
        group_id=group.name, generation_id_or_member_epoch=member.generation, member_id=member.id,
        group_instance_id=None, retention_time_ms=-1, topics=[],
    )  # fmt: skip
    reply = group.wire.call(empty, OffsetCommitResponse, version)
    assert list(reply.topics) == []
    if version >= 3:
        assert reply.throttle_time_ms == 0


@pytest.mark.parametrize("version", versions(9))
def test_offset_fetch(group: RawGroup, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=2)
    sent = Committed(offset=2**40, leader_epoch=5, metadata="said")
    commit(group.wire, group.name, {(topic, 0): sent})
    kept = sent if version >= 5 else Committed(offset=2**40, metadata="said")
    assert committed(group.wire, group.name, [(topic, 0), (topic, 1)], version) == {
        (topic, 0): kept,
        (topic, 1): NEVER_COMMITTED,
    }
    reply = group.wire.call(fetch_offsets_request({group.name: []}, version), OffsetFetchResponse, version)
    assert list(reply.topics if version < 8 else reply.groups[0].topics) == []
    if version >= 3:
        assert reply.throttle_time_ms == 0


@pytest.mark.parametrize("version", versions(47))
def test_offset_delete(group: RawGroup, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    commit(group.wire, group.name, {(topic, 0): 5})
    row = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = row.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(group_id=group.name, topics=[row(name=topic, partitions=[partition])])
    reply = group.wire.call(request, OffsetDeleteResponse, version)
    assert (reply.error_code, reply.throttle_time_ms) == (NONE, 0)
    assert committed(group.wire, group.name) == {}
