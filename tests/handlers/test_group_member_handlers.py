"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in every version: what is asked, and how it is answered."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from kafscale.groups.effects import Joined, JoinedMember, Left, Synced
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.handlers import heartbeat, join_group, leave_group, sync_group
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import ControlPlane, ask, control_plane
from tests.support.groups_stand_in import GroupsStandIn

BYTES = bytes(range(256))


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        plane.groups = GroupsStandIn()
        yield plane


# --- JoinGroup


def join_request(**fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "m",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=BYTES),
            JoinGroupRequest.JoinGroupRequestProtocol(name="roundrobin", metadata=b""),
        ],
        "reason": "why",
    }
    return JoinGroupRequest(**values | fields)


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = Joined(
        member_id="m",
        generation=7,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        members=(JoinedMember("m", "i", BYTES), JoinedMember("n", None, b"")),
        skip_assignment=True,
    )
    reply = await ask(plane, join_group.handle, version, join_request())
    assert plane.groups.calls == [
        (
            "g",
            {
                "member_id": "m",
                "group_instance_id": "i" if version >= 5 else None,
                "client_id": "test",
                "client_host": "/127.0.0.1",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000 if version >= 1 else 10_000,
                "protocol_type": "consumer",
                "protocols": (Protocol("range", BYTES), Protocol("roundrobin", b"")),
                "member_id_required": version >= 4,
                "can_skip_assignment": version >= 9,
                "reason": "why" if version >= 8 else "",
            },
        )
    ]
    assert (reply.error_code, reply.generation_id, reply.leader, reply.member_id) == (0, 7, "m", "m")
    assert reply.protocol_name == "range"
    assert [(one.member_id, one.metadata) for one in reply.members] == [("m", BYTES), ("n", b"")]
    if version >= 5:
        assert [one.group_instance_id for one in reply.members] == ["i", None]
    if version >= 7:
        assert reply.protocol_type == "consumer"
    if version >= 9:
        assert reply.skip_assignment is True


@pytest.mark.parametrize("version", range(10))
async def test_a_follower_hears_of_no_members(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = Joined(
        member_id="m", generation=7, protocol_type="consumer", protocol_name="range", leader="other"
    )
    reply = await ask(plane, join_group.handle, version, join_request())
    assert (reply.error_code, reply.leader, reply.members) == (0, "other", [])


@pytest.mark.parametrize("version", range(10))
async def test_a_join_that_is_refused(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="new")
    reply = await ask(plane, join_group.handle, version, join_request(member_id=""))
    assert (reply.error_code, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "new")
    no_protocol = None if version >= 7 else ""
    assert (reply.generation_id, reply.protocol_name, reply.leader, reply.members) == (
        -1,
        no_protocol,
        "",
        [],
    )
    plane.groups.refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
    reply = await ask(plane, join_group.handle, version, join_request())
    assert (reply.error_code, reply.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    assert (reply.generation_id, reply.protocol_name, reply.leader, reply.members) == (
        -1,
        no_protocol,
        "",
        [],
    )


# --- SyncGroup


def sync_request(**fields: Any) -> SyncGroupRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "generation_id": 7,
        "member_id": "m",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id="m", assignment=BYTES),
            SyncGroupRequest.SyncGroupRequestAssignment(member_id="n", assignment=b""),
        ],
    }
    return SyncGroupRequest(**values | fields)


@pytest.mark.parametrize("version", range(6))
async def test_a_member_gets_its_assignment(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = Synced(protocol_type="consumer", protocol_name="range", assignment=BYTES)
    reply = await ask(plane, sync_group.handle, version, sync_request())
    assert plane.groups.calls == [
        (
            "g",
            {
                "member_id": "m",
                "group_instance_id": "i" if version >= 3 else None,
                "generation": 7,
                "protocol_type": "consumer" if version >= 5 else None,
                "protocol_name": "range" if version >= 5 else None,
                "assignments": {"m": BYTES, "n": b""},
            },
        )
    ]
    assert (reply.error_code, reply.assignment) == (0, BYTES)
    if version >= 5:
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(6))
async def test_a_sync_that_is_refused(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    reply = await ask(plane, sync_group.handle, version, sync_request())
    assert (reply.error_code, reply.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    reply = await ask(plane, sync_group.handle, version, sync_request())
    assert (reply.error_code, reply.assignment) == (ErrorCode.NOT_COORDINATOR, b"")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
async def test_from_version_5_a_sync_names_the_protocol(plane: ControlPlane, missing: str) -> None:
    reply = await ask(plane, sync_group.handle, 5, sync_request(**{missing: None}))
    assert (reply.error_code, reply.assignment) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert plane.groups.calls == []


# --- Heartbeat


@pytest.mark.parametrize("version", range(5))
async def test_heartbeats(plane: ControlPlane, version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m", group_instance_id="i")
    plane.groups.answer = ErrorCode.NONE
    assert (await ask(plane, heartbeat.handle, version, request)).error_code == 0
    instance_id = "i" if version >= 3 else None
    assert plane.groups.calls == [
        ("g", {"member_id": "m", "group_instance_id": instance_id, "generation": 7})
    ]
    plane.groups.answer = ErrorCode.REBALANCE_IN_PROGRESS
    assert (await ask(plane, heartbeat.handle, version, request)).error_code == 27
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    assert (await ask(plane, heartbeat.handle, version, request)).error_code == 16


# --- LeaveGroup

Leaving = LeaveGroupRequest.MemberIdentity


@pytest.mark.parametrize("version", range(3))
async def test_one_member_leaves(plane: ControlPlane, version: int) -> None:
    member = LeavingMember("m")
    request = LeaveGroupRequest(group_id="g", member_id="m")
    plane.groups.answer = Left(ErrorCode.NONE, ((member, ErrorCode.NONE),))
    assert (await ask(plane, leave_group.handle, version, request)).error_code == 0
    assert plane.groups.calls == [("g", {"members": (member,)})]
    plane.groups.answer = Left(ErrorCode.NONE, ((member, ErrorCode.UNKNOWN_MEMBER_ID),))
    assert (await ask(plane, leave_group.handle, version, request)).error_code == 25
    plane.groups.answer = Left(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (await ask(plane, leave_group.handle, version, request)).error_code == 15


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_several_members_leave(plane: ControlPlane, version: int) -> None:
    members = (LeavingMember("m", None, "x" * 255 if version >= 5 else ""), LeavingMember("", "i"))
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            Leaving(member_id="m", group_instance_id=None, reason="x" * 1000),
            Leaving(member_id="", group_instance_id="i"),
        ],
    )
    plane.groups.answer = Left(
        ErrorCode.NONE, ((members[0], ErrorCode.NONE), (members[1], ErrorCode.UNKNOWN_MEMBER_ID))
    )
    reply = await ask(plane, leave_group.handle, version, request)
    assert plane.groups.calls == [("g", {"members": members})]
    assert reply.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [
        ("m", None, 0),
        ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", range(6))
async def test_leaving_through_the_wrong_broker(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    request = (
        LeaveGroupRequest(group_id="g", members=[Leaving(member_id="m", group_instance_id=None)])
        if version >= 3
        else LeaveGroupRequest(group_id="g", member_id="m")
    )
    reply = await ask(plane, leave_group.handle, version, request)
    assert (reply.error_code, reply.members) == (ErrorCode.NOT_COORDINATOR, [])
