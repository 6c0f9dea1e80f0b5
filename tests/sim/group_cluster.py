"""Brokers that coordinate one group after the other and side by side, and members that follow the protocol."""

import asyncio
import random
import uuid
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.effects import Joined
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.groups.shards import GroupShards
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import MetadataStore, Put, TransactionResult
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.groups.no_transactions import NoTransactions
from tests.sim.unreliable import Network, UnreliableMetadata
from tests.support.owners import end_leases

GROUP = "group"
TOPIC = "topic"
PARTITIONS = 4
TOPIC_ID = uuid.UUID(int=1)
SESSION_MS = 6000
SETTINGS = replace(
    Settings(),
    group_initial_rebalance_delay_ms=300,
    group_min_session_timeout_ms=1000,
    group_consumer_session_timeout_ms=SESSION_MS,
    offsets_commit_timeout_ms=4000,
)
HEARTBEAT_SEC = 1.0
REBALANCE_MS = 12_000


class HistoricStore(MemoryStore):
    """Remembers every committed offset that was ever stored, in order."""

    def __init__(self) -> None:
        super().__init__(max_operations=4)
        self.history: dict[str, list[int]] = defaultdict(list)

    async def transact(self, compares: Any, operations: Any) -> TransactionResult:
        result = await super().transact(compares, operations)
        if result.succeeded:
            for operation in operations:
                if isinstance(operation, Put) and operation.key.startswith(keys.GROUP_OFFSETS):
                    committed = decode_committed_offset(operation.key, operation.value)
                    self.history[operation.key].append(committed.offset)
        return result


@dataclass
class World:
    """One store, one group, any number of brokers that believe that they coordinate it."""

    rng: random.Random
    fault_rate: float
    store: HistoricStore = field(default_factory=HistoricStore)
    coordinators: list[GroupCoordinator] = field(default_factory=list)
    shards: list[GroupShards] = field(default_factory=list)
    assignments: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    acknowledged: dict[int, int] = field(default_factory=dict)
    members: dict[str, "SimulatedMember"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = Network(self.rng, self.fault_rate)
        self.faulty = cast(MetadataStore, UnreliableMetadata(self.store, self.network))

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def elect(self) -> None:
        """One more broker takes the group over; the others may not know for as long as they write nothing."""
        broker_id = len(self.coordinators)
        await end_leases(self.store, keys.COORDINATORS)
        lease = await self.store.grant_lease(3600)
        coordination = Coordination(self.faulty, broker_id, lambda: lease)
        metrics = Metrics(broker_id=broker_id, version="sim").groups
        shards = GroupShards(self.faulty, coordination, SETTINGS, metrics, self.now_ms)
        await shards.claim([keys.shard_of(GROUP)])
        topic = TopicRecord(name=TOPIC, topic_id=TOPIC_ID, partition_count=PARTITIONS)
        await self.store.transact([], [Put(keys.topic(TOPIC), encode_topic_record(topic))])
        view = ClusterView("sim")
        view.apply(keys.TOPICS, await self.store.range(keys.TOPICS))
        self.coordinators.append(
            GroupCoordinator(shards, self.faulty, view, SETTINGS, metrics, self.now_ms, NoTransactions())
        )
        self.shards.append(shards)

    def coordinator(self) -> GroupCoordinator:
        """Mostly the newest, sometimes the one before: the client has not heard of the change."""
        stale = len(self.coordinators) > 1 and self.rng.random() < 0.1
        return self.coordinators[-2 if stale else -1]

    async def stored_offsets(self) -> dict[int, int]:
        items = (await self.store.range(keys.group_offsets(GROUP))).items
        return {
            keys.offset_topic_and_partition(item.key)[1]: decode_committed_offset(item.key, item.value).offset
            for item in items
        }

    async def close(self) -> None:
        for shards in self.shards:
            await shards.close()
        await self.network.settle()


class SimulatedMember:
    """A consumer: joins, takes its partitions, commits what it processed, until it leaves or dies."""

    def __init__(self, world: World, name: str, instance_id: str | None = None) -> None:
        self._world = world
        self.name = name
        self._instance_id = instance_id
        self._coordinator = world.coordinator()
        self._member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.fenced = False

    async def run(self) -> None:
        """Until cancelled, or fenced by another member with its instance id."""
        while not self.fenced:
            try:
                if await self._join():
                    await self._consume()
            except KafkaError as problem:
                await self._handle(problem.code)
            self.owned = set()

    async def leave(self) -> None:
        """Tell the coordinator."""
        try:
            await self._coordinator.classic.leave(GROUP, (LeavingMember(self._member_id, self._instance_id),))
        except KafkaError:
            return  # Its session will end.

    async def _handle(self, error_code: ErrorCode) -> None:
        match error_code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                if error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                self.generation = -1
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                await asyncio.sleep(self._world.rng.uniform(0.05, 0.5))
                self._coordinator = self._world.coordinator()
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.1)
            case _:
                raise AssertionError(f"{self.name} met {error_code!r}")

    async def _join(self) -> bool:
        joined = await self._coordinator.classic.join(
            GROUP,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            client_id=self.name,
            client_host="host",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(Protocol("range", b"all"),),
            member_id_required=True,
        )
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return False
        if joined.error_code is not ErrorCode.NONE:
            await self._handle(joined.error_code)
            return False
        self._member_id, self.generation = joined.member_id, joined.generation
        return await self._sync(joined)

    async def _sync(self, joined: Joined) -> bool:
        # Who assigns gives its assignment a mark, to tell assignments of the same generation apart.
        mark = self._world.rng.randbytes(8) if joined.members else b""
        members = [member.member_id for member in joined.members]
        assignments = {
            member_id: mark + bytes(range(number, PARTITIONS, len(members)))
            for number, member_id in enumerate(members)
        }
        synced = await self._coordinator.classic.sync(
            GROUP,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        if synced.error_code is not ErrorCode.NONE:
            await self._handle(synced.error_code)
            return False
        self._world.assignments[self.generation].add(synced.assignment[:8])
        self.owned = set(synced.assignment[8:])
        return True

    async def _consume(self) -> None:
        offsets = (await self._coordinator.fetch_offsets(GROUP, require_stable=False)).committed
        position = {
            index: offsets[TOPIC, index].offset if (TOPIC, index) in offsets else 0 for index in self.owned
        }
        while True:
            await asyncio.sleep(self._world.rng.uniform(0.2, HEARTBEAT_SEC))
            error_code = self._coordinator.classic.heartbeat(
                GROUP,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                generation=self.generation,
            )
            if error_code is not ErrorCode.NONE:
                await self._handle(error_code)
                return
            for index in position:
                position[index] += self._world.rng.randrange(1, 10)
            if not await self._commit(position):
                return

    async def _commit(self, position: dict[int, int]) -> bool:
        error_code = await self._coordinator.commit(
            GROUP,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            generation=self.generation,
            offsets={
                (TOPIC, index): CommittedOffset(
                    topic_id=TOPIC_ID, offset=offset, commit_timestamp_ms=self._world.now_ms()
                )
                for index, offset in position.items()
            },
        )
        if error_code is not ErrorCode.NONE:
            await self._handle(error_code)
            return False
        for index, offset in position.items():
            self._world.acknowledged[index] = max(offset, self._world.acknowledged.get(index, 0))
        return True
