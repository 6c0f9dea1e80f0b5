"""A group of both protocols for tests: its topic, and members that understand their assignments."""

from uuid import UUID

from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.requests import ConsumerHeartbeat, HeartbeatAnswer
from kafscale.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kafscale.groups.effects import Joined, Synced
from kafscale.groups.events import Protocol
from kafscale.groups.modern.assignment import Assignment
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.controlled_metadata import Metadata
from tests.groups.coordination import GROUP, Brokers, Coordinating, Member

PARTITIONS = 4
TOPIC = "payments"
TOPIC_ID = UUID(int=7)
EVERY = frozenset(range(PARTITIONS))


class OneByOne(Metadata):
    """A store whose transactions have one operation beside the shard's own."""

    max_operations = 2


async def one_broker(brokers: Brokers, partitions: int = PARTITIONS) -> Coordinating:
    """A broker that coordinates the group; its topic exists."""
    record = TopicRecord(name=TOPIC, topic_id=TOPIC_ID, partition_count=partitions)
    put = Put(keys.topic(TOPIC), encode_topic_record(record))
    await MemoryStore.transact(brokers.store, [], [put])
    return await next_broker(brokers)


async def next_broker(brokers: Brokers) -> Coordinating:
    """The one before has not heard of it."""
    broker = await brokers.prepare()
    await broker.shards.claim([keys.shard_of(GROUP)])
    return broker


def share(*partitions: int) -> bytes:
    """An assignment of these partitions of the topic."""
    return encode_assignment(1, {TOPIC: frozenset(partitions)} if partitions else {})


def metadata(*owned: int, version: int = 1) -> bytes:
    """The subscription of a classic member that has these partitions."""
    has = {TOPIC: frozenset(owned)} if owned else {}
    return encode_subscription(Subscription(version, frozenset({TOPIC}), has, None))


class ClassicClient(Member):
    """A member of the classic protocol that says what it owns."""

    def __init__(self, broker: Coordinating, *owned: int, name: str = "range", **options: object) -> None:
        super().__init__(broker, GROUP, protocols=(Protocol(name, metadata(*owned)),), **options)  # type: ignore[arg-type]

    async def join_owning(self, *owned: int) -> Joined:
        """JoinGroup of a member that has these partitions now."""
        self.protocols = tuple(Protocol(one.name, metadata(*owned)) for one in self.protocols)
        return await self.join()

    async def get(self) -> frozenset[int]:
        """SyncGroup; its partitions."""
        synced = await self.sync_with({})
        assert synced.error_code is ErrorCode.NONE
        return decode_assignment(synced.assignment).get(TOPIC, frozenset())

    async def sync_with(self, assignments: dict[str, bytes]) -> Synced:
        """SyncGroup; as the leader with these assignments."""
        return await self.broker.coordinator.classic.sync(
            self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocols[0].name,
            assignments=assignments,
        )

    async def lead_alone(self) -> None:
        """Join a new classic group, and assign itself everything."""
        assert (await self.join()).error_code is ErrorCode.NONE
        assert (await self.sync_with({self.member_id: share(*EVERY)})).error_code is ErrorCode.NONE


class ConsumerClient:
    """A member of the consumer protocol."""

    def __init__(self, broker: Coordinating, member_id: str = "new", instance_id: str | None = None) -> None:
        self.broker = broker
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.has: frozenset[int] = frozenset()

    async def heartbeat(
        self, epoch: int | None = None, *, topics: tuple[str, ...] = (TOPIC,)
    ) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat, with what the member has; it obeys the answer."""
        epoch = self.epoch if epoch is None else epoch
        joins = epoch == 0
        owned: Assignment = {TOPIC_ID: self.has} if self.has and not joins else {}
        answer = await self.broker.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rack_id=None,
                rebalance_timeout_ms=60_000 if joins else -1,
                subscribed_topic_names=topics if joins else None,
                subscribed_topic_regex=None,
                server_assignor=None,
                owned=owned,
                client_id="client",
                client_host="/127.0.0.1",
                may_describe=lambda topic: True,
            )
        )
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.has = answer.assignment.get(TOPIC_ID, frozenset())
        return answer

    async def leave(self, epoch: int = -1) -> None:
        """-2: for a while."""
        await self.heartbeat(epoch)


def consumer_group(broker: Coordinating) -> ConsumerGroup:
    """The group, which must be a consumer group."""
    group = next(one for one in broker.coordinator.groups() if one.group_id == GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def group_type(broker: Coordinating) -> tuple[str, str]:
    """Type and state, as ListGroups has them."""
    group = next(one for one in broker.coordinator.groups() if one.group_id == GROUP)
    return group.GROUP_TYPE, group.state.value


async def member_keys(brokers: Brokers) -> list[str]:
    """The keys of members in the store."""
    found = await MemoryStore.range(brokers.store, keys.shard_members(keys.shard_of(GROUP)))
    return [item.key for item in found.items]
