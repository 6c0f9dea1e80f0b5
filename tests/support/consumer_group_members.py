"""Groups of the consumer protocol over a raw connection: members that send exactly what a test requires (KIP-848)."""

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.consumer_group_codec import (
    NEWEST,
    DescribedGroup,
    Heartbeat,
    HeartbeatReply,
    Partitions,
    describe_consumer_groups,
    heartbeat,
)
from tests.support.group_wire import NONE, StrictWire, await_coordinator, connect_strictly
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_MS, wait_until

UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
INVALID_REGULAR_EXPRESSION = 128

JOINS = 0
LEAVES = -1
COMES_BACK = -2
"""Epochs with which a member joins, leaves, and leaves as a static member that will return."""

GROUP_RESOURCE = 32
REBALANCE_TIMEOUT_MS = 60_000

_numbers = itertools.count()


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    """A member that uses the epoch of its last reply. `assignment`: the last that it was given."""

    group: "RawConsumerGroup"
    id: str
    instance_id: str | None = None
    epoch: int = JOINS
    assignment: Partitions = field(default_factory=dict)

    def join(self, *names: str, version: int = NEWEST, **fields: Any) -> HeartbeatReply:
        """Join with all that a new member has to say; `fields` replace it."""
        whole: dict[str, Any] = {
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "names": names,
            "owned": {},
        }
        return self.heartbeat(version, epoch=JOINS, **whole | fields)

    def heartbeat(self, version: int = NEWEST, *, epoch: int | None = None, **fields: Any) -> HeartbeatReply:
        """A heartbeat that says nothing but `fields`, with the member's epoch. Any error is in the reply."""
        request = Heartbeat(
            group_id=self.group.name,
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            **fields,
        )
        reply = heartbeat(self.group.wire, request, version)
        if reply.error_code == NONE:
            self.epoch = reply.member_epoch
            self.assignment = self.assignment if reply.assignment is None else reply.assignment
        return reply

    def acknowledge(self, owned: Partitions | None = None) -> HeartbeatReply:
        """A heartbeat that names the partitions it has: those that it was given last."""
        return self.heartbeat(owned=self.assignment if owned is None else owned)

    def news(self) -> HeartbeatReply:
        """The next reply that has an assignment."""

        def ask() -> HeartbeatReply | None:
            reply = self.heartbeat()
            assert reply.error_code == NONE, reply
            return None if reply.assignment is None else reply

        found = wait_until(ask, f"an assignment for {self.id}")
        assert found is not None
        return found

    def settle(self, beats: int = 2) -> None:
        """Acknowledge, and take what comes: all that it can get before others revoke."""
        for _ in range(beats):
            reply = self.acknowledge()
            assert reply.error_code == NONE, reply

    def leave(self, epoch: int = LEAVES, **fields: Any) -> HeartbeatReply:
        """Leave; or with `COMES_BACK`, for a while."""
        if epoch == COMES_BACK:
            fields = {"instance_id": self.instance_id, **fields}
        return self.heartbeat(epoch=epoch, **fields)


@dataclass(slots=True)
class RawConsumerGroup:
    """A group of its own for a test, and one connection for all its members."""

    broker: Any
    wire: StrictWire
    name: str

    def member(self, name: str = "member", *, instance_id: str | None = None) -> ConsumerMember:
        """One more member, which has not joined yet. `name` begins its id."""
        return ConsumerMember(group=self, id=f"{name}-{next(_numbers)}", instance_id=instance_id)

    def joined(self, name: str, *topics: str, **fields: Any) -> ConsumerMember:
        """A member that has joined."""
        member = self.member(name, instance_id=fields.get("instance_id"))
        reply = member.join(*topics, **fields)
        assert reply.error_code == NONE, reply
        return member

    def describe(self, name: str | None = None) -> DescribedGroup:
        """ConsumerGroupDescribe of this group, or of another."""
        (found,) = describe_consumer_groups(self.wire, [self.name if name is None else name])
        return found

    def epochs(self) -> tuple[str, int, int]:
        """The state, the group's epoch and the epoch of its assignment."""
        found = self.describe()
        return found.state, found.group_epoch, found.assignment_epoch

    def await_members(self, count: int) -> None:
        """Wait until it has that many members."""
        wait_until(lambda: len(self.describe().members) == count, f"{self.name} has {count} members")

    def set_config(self, name: str, value: object) -> None:
        """Set a config of the group (resource type GROUP)."""
        error = alter_group_config(self.wire, self.name, name, value)
        assert error == NONE, f"{name}={value}: error {error}"

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=PATIENCE_MS)
        (result,) = self.wire.call(request, DeleteTopicsResponse, 5).responses
        assert result.error_code == NONE, result

    def settle(self, *members: ConsumerMember) -> None:
        """Heartbeats of all its members until it is stable."""

        def stable() -> bool:
            for member in members:
                member.settle(1)
            return self.describe().state == "Stable"

        wait_until(stable, f"{self.name} is stable")

    def new_topic(self, partitions: int = 1) -> tuple[str, uuid.UUID]:
        """A new topic: its name and id."""
        name = unique_name()
        create_topic(self.broker, name, partitions)
        return name, topic_id(self.wire, name)


@contextlib.contextmanager
def raw_consumer_group(broker: Any, name: str | None = None) -> Iterator[RawConsumerGroup]:
    """A new group, once its coordinator is ready."""
    with connect_strictly(broker) as wire:
        group = RawConsumerGroup(broker, wire, name or unique_name("group"))
        await_coordinator(wire, group.name)
        yield group


def accepted(
    member: ConsumerMember, epoch: int, assignment: Mapping[uuid.UUID, Iterable[int]] | None = None
) -> tuple[Any, ...]:
    """A reply without error, as `outcome` gives it."""
    given = None if assignment is None else {topic: frozenset(one) for topic, one in assignment.items()}
    return NONE, member.id, epoch, given


def refused(error_code: int) -> tuple[Any, ...]:
    """A reply with that error, as `outcome` gives it."""
    return error_code, None, 0, None


def outcome(reply: HeartbeatReply) -> tuple[Any, ...]:
    """Error code, member id, epoch and assignment. Asserts that an error, and only that, has a message."""
    assert (reply.error_code == NONE) == (reply.error_message is None), reply
    assert (reply.heartbeat_interval_ms > 0) == (reply.error_code == NONE and reply.member_epoch > 0), reply
    return reply.error_code, reply.member_id, reply.member_epoch, reply.assignment


def topic_id(wire: StrictWire, name: str) -> uuid.UUID:
    """The id of a topic that exists."""
    row = MetadataRequest.MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0))
    reply = wire.call(MetadataRequest(topics=[row], allow_auto_topic_creation=False), MetadataResponse, 12)
    (topic,) = reply.topics
    assert topic.error_code == NONE, f"{name}: error {topic.error_code}"
    found: uuid.UUID = topic.topic_id
    return found


def grow_topic(wire: StrictWire, name: str, partitions: int) -> None:
    """CreatePartitions: that many in all."""
    row = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[row], timeout_ms=PATIENCE_MS, validate_only=False)
    (result,) = wire.call(request, CreatePartitionsResponse, 2).results
    assert result.error_code == NONE, result


def alter_group_config(wire: StrictWire, group: str, name: str, value: object) -> int:
    """IncrementalAlterConfigs of one config of a group; returns the error code. None deletes it."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    sets = value is not None
    row = resource.AlterableConfig(
        name=name, config_operation=0 if sets else 1, value=str(value) if sets else None
    )
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[row])],
        validate_only=False,
    )
    (found,) = wire.call(request, IncrementalAlterConfigsResponse, 1).responses
    return int(found.error_code)
