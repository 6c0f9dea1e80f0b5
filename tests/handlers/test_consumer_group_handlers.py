"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: what is asked of the coordinator, and how it is answered."""

import uuid
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.formats.features import CONSUMER_PROTOCOL_LEVEL, GROUP_VERSION, encode_level
from kafscale.groups.consumer.requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    HeartbeatAnswer,
)
from kafscale.handlers import consumer_group_describe, consumer_group_heartbeat
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.api_messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask, control_plane
from tests.support.denied_names import DeniedNames
from tests.support.groups_stand_in import GroupsStandIn

A, B = uuid.UUID(int=10), uuid.UUID(int=11)
ANSWER = HeartbeatAnswer(
    member_id="m", member_epoch=4, heartbeat_interval_ms=5000, assignment={A: frozenset({2, 0, 1})}
)

_Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        plane.groups = GroupsStandIn(ANSWER)
        put = Put(keys.feature(GROUP_VERSION), encode_level(CONSUMER_PROTOCOL_LEVEL))
        result = await plane.store.transact([], [put])
        await plane.view.wait_for(result.revision, keys.FEATURES)
        yield plane


def request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 3,
        "instance_id": "i",
        "rack_id": "r",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders", "payments"],
        "subscribed_topic_regex": None,
        "server_assignor": "range",
        "topic_partitions": [_Owned(topic_id=A, partitions=[1, 2]), _Owned(topic_id=B, partitions=[])],
    }
    return ConsumerGroupHeartbeatRequest(**values | fields)


async def beat(plane: ControlPlane, version: int = 1, *, denied: Collection[str] = (), **fields: Any) -> Any:
    access = DeniedNames(*denied)
    return await ask(plane, consumer_group_heartbeat.handle, version, request(**fields), access=access)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_heartbeat_reaches_the_coordinator(plane: ControlPlane, version: int) -> None:
    reply = await beat(plane, version, subscribed_topic_regex="o.*" if version else None)
    ((group_id, arguments),) = plane.groups.calls
    asked = arguments["request"]
    assert group_id == "g"
    assert (asked.member_id, asked.member_epoch, asked.instance_id, asked.rack_id) == ("m", 3, "i", "r")
    assert (asked.rebalance_timeout_ms, asked.server_assignor) == (60_000, "range")
    assert asked.subscribed_topic_names == ("orders", "payments")
    assert asked.subscribed_topic_regex == ("o.*" if version else None)
    assert asked.owned == {A: frozenset({1, 2})}
    assert (asked.client_id, asked.client_host) == ("test", "/127.0.0.1")
    assert (reply.error_code, reply.error_message, reply.member_id) == (0, None, "m")
    assert (reply.member_epoch, reply.heartbeat_interval_ms) == (4, 5000)
    (topic,) = reply.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (A, [0, 1, 2])


async def test_what_did_not_change_is_null(plane: ControlPlane) -> None:
    plane.groups.answer = HeartbeatAnswer(
        member_id="m", member_epoch=3, heartbeat_interval_ms=5000, assignment=None
    )
    reply = await beat(
        plane,
        instance_id=None,
        rack_id=None,
        subscribed_topic_names=None,
        server_assignor=None,
        topic_partitions=None,
        rebalance_timeout_ms=-1,
    )
    asked = plane.groups.calls[0][1]["request"]
    assert (asked.instance_id, asked.rack_id, asked.subscribed_topic_names) == (None, None, None)
    assert (asked.server_assignor, asked.owned, asked.rebalance_timeout_ms) == (None, None, -1)
    assert (reply.error_code, reply.assignment) == (0, None)


async def test_an_empty_assignment_is_not_null(plane: ControlPlane) -> None:
    plane.groups.answer = HeartbeatAnswer(
        member_id="m", member_epoch=3, heartbeat_interval_ms=5000, assignment={}
    )
    assert (await beat(plane)).assignment.topic_partitions == []


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID]
)
async def test_a_refusal_comes_with_its_message(plane: ControlPlane, code: ErrorCode) -> None:
    plane.groups.refuse(code)
    reply = await beat(plane)
    assert (reply.error_code, reply.error_message) == (code, "the test says so")
    assert (reply.member_id, reply.member_epoch, reply.assignment) == (None, 0, None)


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_REQUEST)])
async def test_who_makes_member_ids(plane: ControlPlane, version: int, code: ErrorCode) -> None:
    assert (await beat(plane, version, member_id="", member_epoch=0)).error_code == code


async def test_a_cluster_without_the_feature_refuses_with_the_command() -> None:
    async with control_plane() as plane:
        plane.groups = GroupsStandIn(ANSWER)
        reply = await beat(plane)
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "upgrade --feature group.version=1" in reply.error_message
        (group,) = (await describe(plane, "g")).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert plane.groups.calls == []


@pytest.mark.parametrize(
    ("denied", "code"),
    [("g", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("payments", ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
async def test_a_client_without_rights_is_refused(plane: ControlPlane, denied: str, code: ErrorCode) -> None:
    assert (await beat(plane, denied=[denied])).error_code == code
    assert plane.groups.calls == []


async def test_the_coordinator_learns_what_a_member_may_describe(plane: ControlPlane) -> None:
    await beat(plane, denied=["secret"])
    may_describe = plane.groups.calls[0][1]["request"].may_describe
    assert [may_describe(name) for name in ("orders", "secret")] == [True, False]


# --- ConsumerGroupDescribe


async def describe(plane: ControlPlane, *groups: str, version: int = 1, denied: Collection[str] = ()) -> Any:
    message = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
    access = DeniedNames(*denied)
    return await ask(plane, consumer_group_describe.handle, version, message, access=access)


def described(topic_id: uuid.UUID) -> DescribedConsumerGroup:
    member = DescribedConsumerMember(
        member_id="m",
        instance_id="i",
        rack_id=None,
        member_epoch=3,
        client_id="c",
        client_host="/127.0.0.1",
        subscribed_topic_names=frozenset({"payments", "orders"}),
        subscribed_topic_regex="o.*",
        assignment={topic_id: frozenset({1, 0}), B: frozenset({7})},
        target_assignment={topic_id: frozenset({1})},
        is_classic=False,
    )
    return DescribedConsumerGroup(
        group_id="g",
        state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=(member,),
    )


async def a_topic(plane: ControlPlane, name: str = "orders") -> uuid.UUID:
    await plane.topics.create(NewTopic(name=name, partition_count=2), timeout_ms=TIMEOUT_MS)
    record = plane.view.topic(name)
    assert record is not None
    return record.topic_id


@pytest.mark.parametrize("version", [0, 1])
async def test_a_group_is_described_with_names_of_topics(plane: ControlPlane, version: int) -> None:
    topic_id = await a_topic(plane)
    plane.groups.answer = described(topic_id)
    (group,) = (await describe(plane, "g", "g", version=version)).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (5, 4, "uniform")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", None, 3)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders", "payments"], "o.*")
    # A topic that is gone has no name.
    assert [(one.topic_id, one.topic_name, one.partitions) for one in member.assignment.topic_partitions] == [
        (topic_id, "orders", [0, 1])
    ]
    assert [one.partitions for one in member.target_assignment.topic_partitions] == [[1]]
    if version >= 1:
        assert member.member_type == 1


async def test_a_group_with_hidden_topics_is_not_described(plane: ControlPlane) -> None:
    plane.groups.answer = described(await a_topic(plane))
    (group,) = (await describe(plane, "g", denied=["orders"])).groups
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert "not authorized to describe" in group.error_message


async def test_groups_that_cannot_be_described(plane: ControlPlane) -> None:
    plane.groups.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    groups = (await describe(plane, "g", "", "hidden", denied=["hidden"])).groups
    assert {one.group_id: one.error_code for one in groups} == {
        "g": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.INVALID_GROUP_ID,
        "hidden": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    assert plane.groups.calls == [("g", {})]
