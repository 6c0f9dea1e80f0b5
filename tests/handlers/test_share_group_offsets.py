"""Describe-, Alter-, DeleteShareGroupOffsets, ListGroups and DeleteGroups of share groups, as Apache Kafka 4.2."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, ListGroupsRequest

from kafscale.metadata import keys
from kafscale.protocol import api_messages as m
from kafscale.protocol.acl_codes import Operation, PatternType, Permission, ResourceType
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.security.principal import Principal
from kafscale.settings.broker import AuthorizerKind
from kafscale.share.state.stored_group import read_share_group
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker
from tests.support.share_member import ACCEPT, REJECT, ShareMember
from tests.support.waiting import PATIENCE_SEC

NOTHING = uuid.UUID(int=0)
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
GROUP_DENIED = (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
OK = (0, None)

Outcome = tuple[int, str | None]


@dataclass
class Admin:
    """An administrator's connection."""

    client: Client
    ids: dict[uuid.UUID, str]

    async def ask(self, request: Any, version: int) -> Any:
        return await self.client.call(request, RESPONSE_CLASSES[int(request.API_KEY)], version)

    async def offsets(
        self, topics: Mapping[str, Sequence[int]] | None = None, group: str = "g", version: int = 1
    ) -> Any:
        """By topic: start, leader epoch and lag of each partition; or the error of the group."""
        asked = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        topic = asked.DescribeShareGroupOffsetsRequestTopic
        named = None
        if topics is not None:
            named = [topic(topic_name=name, partitions=list(of)) for name, of in topics.items()]
        request = m.DescribeShareGroupOffsetsRequest(groups=[asked(group_id=group, topics=named)])
        (found,) = (await self.ask(request, version)).groups
        assert found.group_id == group
        if found.error_code:
            assert not found.topics
            return found.error_code, found.error_message
        answer: dict[str, Any] = {}
        for one in found.topics:
            assert self.ids.get(one.topic_id or NOTHING, one.topic_name) == one.topic_name
            answer[one.topic_name] = {
                part.partition_index: (part.start_offset, part.leader_epoch, part.lag)
                if not part.error_code
                else (part.error_code, part.error_message)
                for part in one.partitions
            }
        return answer

    async def alter(self, topics: Mapping[str, Sequence[tuple[int, int]]], group: str = "g") -> Any:
        """By topic: the outcome of each partition; or the error of the request."""
        topic = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        part = topic.AlterShareGroupOffsetsRequestPartition
        named = [
            topic(topic_name=name, partitions=[part(partition_index=i, start_offset=o) for i, o in of])
            for name, of in topics.items()
        ]
        answer = await self.ask(m.AlterShareGroupOffsetsRequest(group_id=group, topics=named), 0)
        if answer.error_code:
            assert not answer.responses
            return answer.error_code, answer.error_message
        return {
            one.topic_name: [
                (each.partition_index, each.error_code, each.error_message) for each in one.partitions
            ]
            for one in answer.responses
        }

    async def delete(self, *topics: str, group: str = "g") -> Any:
        """The outcome of each topic, or the error of the request."""
        topic = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        request = m.DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[topic(topic_name=name) for name in topics]
        )
        answer = await self.ask(request, 0)
        if answer.error_code:
            assert not answer.responses
            return answer.error_code, answer.error_message
        for one in answer.responses:
            assert (one.topic_id or NOTHING) == NOTHING or self.ids[one.topic_id] == one.topic_name
            assert bool(one.error_code) is ((one.topic_id or NOTHING) == NOTHING)
        return [(one.error_code, one.error_message) for one in answer.responses]

    async def delete_group(self, group: str = "g") -> int:
        (result,) = (await self.ask(DeleteGroupsRequest(groups_names=[group]), 2)).results
        return int(result.error_code)

    async def listed(self, *types: str, version: int = 5) -> list[tuple[str, ...]]:
        answer = await self.ask(ListGroupsRequest(states_filter=[], types_filter=list(types)), version)
        assert answer.error_code == 0
        return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups]

    async def heartbeat(self, epoch: int = 0, group: str = "g", topics: Sequence[str] = ("topic",)) -> Any:
        """Of member `a`."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=group,
            member_id="a",
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=list(topics) if epoch == 0 else None,
        )
        answer = await self.ask(request, 1)
        assert answer.error_code == 0, answer
        return answer


@dataclass
class Setting:
    """A broker with a topic of two partitions, another one, and a connection of two clients."""

    broker: InProcessBroker
    admin: Admin
    member: ShareMember


async def setting(broker: InProcessBroker, one: Client, two: Client) -> Setting:
    view, ids = broker.process.serving.view, {}
    for name, partitions in (("topic", 2), ("other", 1)):
        await broker.create_topic(name, partitions)
        record = view.topic(name)
        assert record is not None
        ids[record.topic_id] = name
    return Setting(broker, Admin(one, ids), ShareMember(two, next(iter(ids))))


@pytest.fixture
async def at() -> AsyncIterator[Setting]:
    async with in_process_broker() as broker, broker.connect() as one, broker.connect() as two:
        yield await setting(broker, one, two)


async def produce(at: Setting, count: int) -> None:
    part = await at.admin.client.produce("topic", 0, wire.batch([b"value"] * count))
    assert part.error_code == 0


async def acquired_within_patience(member: ShareMember, expected: list[tuple[int, int, int]]) -> None:
    """The leader has heard of an alteration, which may be a moment later; it gives the member this."""
    async with asyncio.timeout(PATIENCE_SEC):
        while True:
            answer = await member.fetch([0])
            if isinstance(answer, dict) and 0 in answer and answer[0].acquired:
                assert answer[0].acquired == expected
                return
            await asyncio.sleep(0.005)


async def test_offsets_are_described_altered_and_deleted(at: Setting) -> None:
    admin, member = at.admin, at.member
    assert await admin.offsets() == {}
    await admin.heartbeat()
    assert await admin.offsets() == {"topic": {0: (-1, 0, -1), 1: (-1, 0, -1)}}
    assert await member.fetch([0]) is not None
    await produce(at, 10)
    assert await member.acquired() == [(0, 9, 1)]
    assert await member.say((0, 3, ACCEPT), (5, 5, ACCEPT), (7, 8, REJECT)) == {0: 0}
    ((start, epoch, lag), untouched) = (await admin.offsets())["topic"].values()
    assert (start, lag, untouched) == (4, 3, (-1, 0, -1))
    assert (await admin.offsets(version=0))["topic"][0] == (4, epoch, -1)
    named = {"topic": [1, 0, 5], "nope": [0], "other": [0]}
    assert await admin.offsets(named) == {
        "topic": {1: (-1, 0, -1), 0: (4, epoch, 3), 5: (-1, 0, -1)},
        "nope": {0: (-1, 0, -1)},
        "other": {0: (-1, 0, -1)},
    }
    assert await admin.offsets({}) == {}
    assert await admin.offsets({"topic": [0]}, group="unknown") == {"topic": {0: (-1, 0, -1)}}
    # Under a member nothing is changed.
    not_empty = (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    assert await admin.alter({"topic": [(0, 7)]}) == not_empty
    assert await admin.delete("topic") == not_empty
    assert await admin.delete_group() == ErrorCode.NON_EMPTY_GROUP
    await admin.heartbeat(-1)
    # Its session goes on, and reads from the altered start at once.
    asked = {"topic": [(0, 7), (5, 1), (0, 6)], "nope": [(0, 1)], "other": [(0, 0)]}
    assert await admin.alter(asked) == {
        "topic": [(0, *OK), (5, *UNKNOWN), (0, *OK)],
        "nope": [(0, *UNKNOWN)],
        "other": [(0, *OK)],
    }
    await acquired_within_patience(member, [(6, 9, 1)])
    assert await admin.offsets() == {
        "topic": {0: (6, epoch, 4), 1: (-1, 0, -1)},
        "other": {0: (0, 0, -1)},
    }
    assert await admin.delete("topic", "nope", "topic") == [OK, UNKNOWN, OK]
    nothing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    assert await admin.delete("topic", "other") == [nothing, OK]
    assert await admin.delete() == []
    assert await admin.offsets() == {}
    assert await admin.listed("Share") == [("g", "share", "Empty", "share")]


async def test_offsets_beyond_the_log_and_those_that_are_not_legal(at: Setting) -> None:
    await produce(at, 5)
    words = "a start offset of -2: legal are 0 and more, and -1 for share.auto.offset.reset"
    assert await at.admin.alter({"topic": [(0, 100), (1, -2)]}) == {
        "topic": [(0, *OK), (1, ErrorCode.INVALID_REQUEST, words)]
    }
    assert await at.admin.offsets() == {"topic": {0: (100, 0, -1)}}
    assert await at.admin.alter({"topic": [(0, -1)]}) == {"topic": [(0, *OK)]}
    assert await at.admin.offsets() == {"topic": {0: (-1, 0, -1)}}
    assert await at.admin.alter({}) == {}
    assert await at.admin.alter({"topic": []}) == {"topic": []}


async def test_a_group_goes_with_all_that_is_stored_of_it(at: Setting) -> None:
    admin, store = at.admin, at.broker.metadata
    await produce(at, 5)
    assert await admin.alter({"topic": [(0, 2)]}) == {"topic": [(0, *OK)]}
    assert await at.member.acquired([0]) == [(2, 4, 1)]
    assert await admin.listed() == [("g", "share", "Empty", "share")]
    assert await admin.listed("consumer", "classic") == []
    assert await admin.delete_group() == 0
    left = await read_share_group(store, "g")
    assert (left.start_keys, left.state_keys) == ([], [])
    assert await store.get(keys.group("g")) is None
    assert await admin.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND
    assert await admin.listed() == []
    assert await admin.offsets() == {}
    not_found = (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    assert await admin.delete("topic") == not_found


async def test_a_group_is_read_once_however_often_it_is_named(at: Setting) -> None:
    await at.admin.alter({"topic": [(0, 2)], "other": [(0, 3)]})
    asked = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topic = asked.DescribeShareGroupOffsetsRequestTopic(topic_name="other", partitions=[0])
    groups = [asked(group_id="g", topics=one) for one in (None, [topic], None, None)]
    answer = await at.admin.ask(m.DescribeShareGroupOffsetsRequest(groups=groups), 1)
    assert [[one.topic_name for one in group.topics] for group in answer.groups] == [
        ["other", "topic"],
        ["other"],
    ]


async def test_refusals_of_the_request(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = at.admin
    invalid = (ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    assert await admin.alter({"topic": [(0, 1)]}, group="") == invalid
    assert await admin.delete("topic", group="") == invalid
    assert await admin.offsets(group="") == {}
    monkeypatch.setattr(at.broker.process.serving.view, "feature_level", lambda name: 0)
    for answer in (await admin.offsets(), await admin.alter({}), await admin.delete()):
        assert answer[0] == ErrorCode.UNSUPPORTED_VERSION


# Who may do that

ALICE = Principal("User", "alice")
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


async def allow(at: Setting, kind: ResourceType, name: str, operation: Operation) -> None:
    rule = m.CreateAclsRequest.AclCreation(
        resource_type=int(kind),
        resource_name=name,
        resource_pattern_type=int(PatternType.LITERAL),
        principal=str(ALICE),
        host="*",
        operation=int(operation),
        permission_type=int(Permission.ALLOW),
    )
    (result,) = (await at.admin.ask(m.CreateAclsRequest(creations=[rule]), 3)).results
    assert result.error_code == 0


async def test_what_a_client_needs_to_be_allowed() -> None:
    settings: dict[str, Any] = {
        "authorizer": AuthorizerKind.ACL,
        "super_users": frozenset({"User:ANONYMOUS"}),
    }
    async with in_process_broker(**settings) as broker, broker.connect() as one:
        basics = broker.process.basics
        assert basics.authorizer is not None
        access_of = basics.authorizer.access
        at = await setting(broker, one, one)
        assert await at.admin.alter({"topic": [(0, 2)], "other": [(0, 3)]}) == {
            "topic": [(0, *OK)],
            "other": [(0, *OK)],
        }
        basics.listener.access_of = lambda _, host: access_of(ALICE, host)
        async with broker.connect() as client:
            alice = Admin(client, at.admin.ids)
            await alice.ask(m.ApiVersionsRequest(), 0)  # Until then the broker may not have accepted it.
            await may_do_no_more_than_allowed(at, alice)


async def may_do_no_more_than_allowed(at: Setting, alice: Admin) -> None:
    both = {"topic": [0], "nope": [0]}
    altered = {"topic": [(0, 4)], "nope": [(0, 4)]}
    assert await alice.offsets() == GROUP_DENIED
    await allow(at, GROUP, "g", Operation.DESCRIBE)
    assert await alice.offsets() == {}
    assert await alice.offsets(both) == {"topic": {0: DENIED}, "nope": {0: DENIED}}
    assert await alice.alter(altered) == GROUP_DENIED
    await allow(at, TOPIC, "topic", Operation.DESCRIBE)
    assert await alice.offsets() == {"topic": {0: (2, 0, -1)}}
    assert await alice.offsets(both) == {"topic": {0: (2, 0, -1)}, "nope": {0: DENIED}}
    await allow(at, GROUP, "g", Operation.READ)
    assert await alice.alter(altered) == {"topic": [(0, *DENIED)], "nope": [(0, *DENIED)]}
    await allow(at, TOPIC, "topic", Operation.READ)
    assert await alice.alter(altered) == {"topic": [(0, *OK)], "nope": [(0, *DENIED)]}
    assert await alice.offsets() == {"topic": {0: (4, 0, -1)}}
    assert await alice.delete("topic") == GROUP_DENIED
    await allow(at, GROUP, "g", Operation.DELETE)
    assert await alice.delete("other", "topic", "nope") == [DENIED, OK, DENIED]
    assert await at.admin.offsets() == {"other": {0: (3, 0, -1)}}
