"""FindCoordinator, DescribeGroups, ListGroups and DeleteGroups, in every version."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from kafscale.formats.topic_record import encode_coordinator_record
from kafscale.groups.states import GroupState
from kafscale.handlers import delete_groups, describe_groups, find_coordinator, list_groups
from kafscale.metadata import keys
from kafscale.metadata.model import CoordinatorRecord
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import ControlPlane, ask, control_plane
from tests.support.groups_stand_in import GroupsStandIn, group_in_state, member_record


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        plane.groups = GroupsStandIn()
        yield plane


# --- FindCoordinator

NOWHERE = (-1, "", -1)


async def coordinate(plane: ControlPlane, group_id: str, broker_id: int) -> None:
    shard = keys.shard_of(group_id)
    record = encode_coordinator_record(CoordinatorRecord(broker_id=broker_id, coordinator_epoch=1))
    result = await plane.store.transact([], [Put(keys.coordinator(shard), record)])
    await plane.view.wait_for(result.revision, keys.COORDINATORS)


async def find(plane: ControlPlane, version: int, key: str, key_type: int = 0) -> Any:
    request = (
        FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        if version >= 4
        else FindCoordinatorRequest(key=key, key_type=key_type)
    )
    reply = await ask(plane, find_coordinator.handle, version, request)
    if version < 4:
        return reply
    (coordinator,) = reply.coordinators
    assert coordinator.key == key
    return coordinator


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("group_id", ["g", "", "ä/ö " * 50])
async def test_the_broker_that_coordinates_a_group(plane: ControlPlane, version: int, group_id: str) -> None:
    await coordinate(plane, group_id, plane.settings.broker_id)
    found = await find(plane, version, group_id)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, "broker.test", 9092)
    assert found.error_message in (None, "")


@pytest.mark.parametrize("version", range(5))
async def test_a_group_without_a_coordinator(plane: ControlPlane, version: int) -> None:
    await coordinate(plane, "of a broker that has gone", 99)
    for group_id in ("of nobody", "of a broker that has gone"):
        found = await find(plane, version, group_id)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (found.node_id, found.host, found.port) == NOWHERE


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.INVALID_REQUEST),
        (-1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_coordinators_that_are_not_here(
    plane: ControlPlane, version: int, key_type: int, code: ErrorCode
) -> None:
    await coordinate(plane, "g", plane.settings.broker_id)
    found = await find(plane, version, "g", key_type)
    assert (found.error_code, (found.node_id, found.host, found.port)) == (code, NOWHERE)
    assert found.error_message


async def test_several_groups_at_once(plane: ControlPlane) -> None:
    await coordinate(plane, "here", plane.settings.broker_id)
    await coordinate(plane, "gone", 99)
    request = FindCoordinatorRequest(coordinator_keys=["gone", "here", "here"], key_type=0)
    reply = await ask(plane, find_coordinator.handle, 4, request)
    assert [(one.key, one.error_code, one.node_id) for one in reply.coordinators] == [
        ("gone", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
        ("here", 0, 0),
        ("here", 0, 0),
    ]
    request = FindCoordinatorRequest(coordinator_keys=[], key_type=0)
    assert (await ask(plane, find_coordinator.handle, 4, request)).coordinators == []


# --- DescribeGroups


async def describe(plane: ControlPlane, version: int, *group_ids: str, operations: bool = False) -> Any:
    request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=operations)
    return (await ask(plane, describe_groups.handle, version, request)).groups


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_is_described(plane: ControlPlane, version: int) -> None:
    members = (member_record("m", "i"), member_record("n"))
    plane.groups.answer = group_in_state("g", GroupState.STABLE, *members)
    (group,) = await describe(plane, version, "g")
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "roundrobin")
    assert [
        (one.member_id, one.client_id, one.client_host, one.member_metadata, one.member_assignment)
        for one in group.members
    ] == [
        ("m", "client of m", "/127.0.0.1", b"topics of m", b"part of m"),
        ("n", "client of n", "/127.0.0.1", b"topics of n", b"part of n"),
    ]
    if version >= 4:
        assert [one.group_instance_id for one in group.members] == ["i", None]
    assert group.authorized_operations is None


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
async def test_during_a_rebalance_no_protocol_is_returned(
    plane: ControlPlane, version: int, state: GroupState
) -> None:
    plane.groups.answer = group_in_state("g", state, member_record("m"))
    (group,) = await describe(plane, version, "g")
    assert (group.error_code, group.group_state) == (0, state.value)
    assert (group.protocol_type, group.protocol_data) == ("consumer", "")
    assert [(one.member_id, one.member_metadata) for one in group.members] == [("m", b"")]


@pytest.mark.parametrize("version", range(7))
async def test_groups_without_members_are_described(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = lambda group_id: (
        group_in_state(group_id, GroupState.EMPTY) if group_id == "empty" else None
    )
    empty, absent = await describe(plane, version, "empty", "absent")
    assert (empty.error_code, empty.group_state, empty.protocol_type, empty.members) == (0, "Empty", "", [])
    if version >= 6:
        assert (absent.error_code, absent.error_message) == (69, "Group absent not found.")
    else:
        assert absent.error_code == 0
    assert (absent.group_state, absent.protocol_type) == ("Dead", "")
    assert (absent.group_id, absent.protocol_data, absent.members) == ("absent", "", [])


@pytest.mark.parametrize("version", range(3, 7))
async def test_authorized_operations_are_returned_on_request(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = group_in_state("g", GroupState.EMPTY)
    (group,) = await describe(plane, version, "g", operations=True)
    assert group.authorized_operations == {3, 6, 8, 10, 11}  # read, delete, describe, configs


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_elsewhere_is_not_described(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    (group,) = await describe(plane, version, "g", operations=version >= 3)
    assert (group.error_code, group.group_id) == (ErrorCode.NOT_COORDINATOR, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data, group.members) == ("", "", "", [])
    assert group.authorized_operations is None


async def test_a_group_that_is_named_again_and_again_is_described_once(plane: ControlPlane) -> None:
    groups = await describe(plane, 5, *["a", "b"] * 1000)
    assert [group.group_id for group in groups] == ["a", "b"]


# --- ListGroups


def some_groups() -> list[Any]:
    return [
        group_in_state("stable", GroupState.STABLE, member_record("m")),
        group_in_state("rebalancing", GroupState.PREPARING_REBALANCE, member_record("m")),
        group_in_state("offsets only", GroupState.EMPTY),
    ]


async def listed(plane: ControlPlane, version: int, **filters: list[str]) -> Any:
    reply = await ask(plane, list_groups.handle, version, ListGroupsRequest(**filters))
    assert reply.error_code == 0
    return reply.groups


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = some_groups()
    groups = await listed(plane, version)
    assert [(group.group_id, group.protocol_type) for group in groups] == [
        ("stable", "consumer"),
        ("rebalancing", "consumer"),
        ("offsets only", ""),
    ]
    if version >= 4:
        assert [group.group_state for group in groups] == ["Stable", "PreparingRebalance", "Empty"]
    if version >= 5:
        assert {group.group_type for group in groups} == {"classic"}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Stable"], ["stable"]),
        (["STABLE", " preparingrebalance "], ["stable", "rebalancing"]),
        (["Dead"], []),
        (["no such state"], []),
        (["no such state", "empty"], ["offsets only"]),
    ],
)
async def test_groups_are_listed_by_state(
    plane: ControlPlane, version: int, states: list[str], expected: list[str]
) -> None:
    plane.groups.answer = some_groups()
    groups = await listed(plane, version, states_filter=states)
    assert [group.group_id for group in groups] == expected


@pytest.mark.parametrize(
    ("types", "count"),
    [(["classic"], 3), (["Classic", "consumer"], 3), (["consumer"], 0), (["share", "no such type"], 0)],
)
async def test_groups_are_listed_by_type(plane: ControlPlane, types: list[str], count: int) -> None:
    plane.groups.answer = some_groups()
    assert len(await listed(plane, 5, types_filter=types)) == count


async def test_groups_of_the_consumer_protocol_have_their_type(plane: ControlPlane) -> None:
    newer = SimpleNamespace(
        group_id="newer", state=GroupState.STABLE, GROUP_TYPE="consumer", protocol_type="consumer"
    )
    plane.groups.answer = (*some_groups(), newer)
    (group,) = await listed(plane, 5, types_filter=["Consumer"])
    assert (group.group_id, group.group_type, group.protocol_type) == ("newer", "consumer", "consumer")
    assert len(await listed(plane, 5, types_filter=["classic"])) == 3
    assert [one.group_id for one in await listed(plane, 0)][-1] == "newer"


@pytest.mark.parametrize("version", range(6))
async def test_groups_that_are_being_loaded_are_not_listed(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    reply = await ask(plane, list_groups.handle, version, ListGroupsRequest())
    assert (reply.error_code, reply.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


# --- DeleteGroups


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted(plane: ControlPlane, version: int) -> None:
    codes = {"gone": ErrorCode.NONE, "busy": ErrorCode.NON_EMPTY_GROUP}
    plane.groups.answer = lambda group_id: codes[group_id]
    request = DeleteGroupsRequest(groups_names=["busy", "gone", "busy"])
    reply = await ask(plane, delete_groups.handle, version, request)
    assert [(one.group_id, one.error_code) for one in reply.results] == [
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("gone", 0),
    ]
    assert [group_id for group_id, _ in plane.groups.calls] == ["busy", "gone"]
    plane.groups.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    reply = await ask(plane, delete_groups.handle, version, DeleteGroupsRequest(groups_names=["absent"]))
    assert [(one.group_id, one.error_code) for one in reply.results] == [
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND)
    ]
