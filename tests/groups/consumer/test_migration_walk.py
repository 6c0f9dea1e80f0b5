"""Members change from the classic protocol to the consumer protocol and back, and coordinators die.

A walk takes random steps from a seed, with clients that start, leave or die, of either protocol. The store takes each
operation by itself and some time for it, so that a coordinator dies between any two of them; the next one loads what
is stored. No partition may ever have two owners, and in the end, left alone, the members have all of them.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups import shard
from kafscale.groups.consumer import classic_joins, downgrading
from kafscale.groups.consumer_protocol import encode_assignment
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.stored_group import operations_of
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from kafscale.protocol.error_codes import KafkaError
from tests.groups.consumer.rolling_members import (
    GROUP,
    PARTITIONS,
    ClassicMember,
    ConsumerProtocolMember,
    Ownership,
    RollingMember,
)
from tests.groups.controlled_metadata import Metadata
from tests.groups.coordination import Brokers, Coordinating, scenario
from tests.support.nightly import by_day

TOPICS = {"orders-a": UUID(int=11), "orders-b": UUID(int=12)}
SEEDS = by_day(range(6), by_night=range(400))
STEPS = 40
DIES_AT_WRITES = 15
"""One of so many writes is not made."""
SETTLING_SEC = 300


class SlowMetadata(Metadata):
    """Each operation is a transaction of its own, and takes some time."""

    max_operations = 2

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.before_write: Callable[[], Awaitable[None]] | None = None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        await asyncio.sleep(self._rng.choice((0, 0, 0.01, 0.1)))
        if self.before_write and any(
            one.key.startswith((keys.GROUPS, keys.GROUP_MEMBERS)) for one in operations
        ):
            await self.before_write()
        return await super().transact(compares, operations)


class Walk:
    """A group, its clients and its coordinators."""

    def __init__(self, brokers: Brokers, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers = brokers
        self.store = SlowMetadata(self.rng)
        self.brokers.store = self.store
        self.protocol = self.rng.choice(("range", "cooperative"))
        self.ownership = Ownership()
        self.clients: dict[str, RollingMember] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.changes = 0
        self._type = ""
        self._broker: Coordinating | None = None
        self._started = 0
        self._is_dying = False

    @property
    def coordinator(self) -> GroupCoordinator:
        assert self._broker is not None
        return self._broker.coordinator

    async def prepare(self) -> None:
        for name, topic_id in TOPICS.items():
            record = TopicRecord(name=name, topic_id=topic_id, partition_count=PARTITIONS)
            put = Put(keys.topic(name), encode_topic_record(record))
            await MemoryStore.transact(self.brokers.store, [], [put])
        await self.next_coordinator()
        self.store.before_write = self.may_die

    async def may_die(self) -> None:
        """Before any write of the group its coordinator may die."""
        if not self._is_dying and not self.rng.randrange(DIES_AT_WRITES):
            await self.next_coordinator()

    async def next_coordinator(self) -> None:
        """Another broker coordinates the group; the one before has not heard of it."""
        self._is_dying = True
        broker = await self.brokers.prepare()
        await broker.shards.claim([keys.shard_of(GROUP)])
        self._broker, self._is_dying = broker, False

    async def step(self) -> None:
        match self.rng.randrange(8):
            case 0 | 1 if len(self.clients) < 5:
                self.start(is_classic=True)
            case 2 | 3 if len(self.clients) < 5:
                self.start(is_classic=False)
            case 4 | 5 if self.clients:
                await self.end(self.rng.choice(sorted(self.clients)), leaves=True)
            case 6 if self.clients and not self.rng.randrange(3):
                await self.end(self.rng.choice(sorted(self.clients)), leaves=False)
            case 7 if not self._is_dying:
                await self.next_coordinator()
        await asyncio.sleep(self.rng.choice((0, 0.05, 0.5, 3, 10)))
        self.look()

    def start(self, *, is_classic: bool) -> None:
        self._started += 1
        name = f"{'classic' if is_classic else 'consumer'}-{self._started}"
        used = {client.instance_id for client in self.clients.values()}
        free = [one for one in ("static-1", "static-2") if one not in used]
        instance_id = self.rng.choice([None, None, *free])
        where = (name, lambda: self.coordinator, self.ownership, TOPICS, self.rng, instance_id)
        client = (
            ClassicMember(*where, protocol=self.protocol) if is_classic else ConsumerProtocolMember(*where)
        )
        self.clients[name] = client
        self.tasks[name] = asyncio.create_task(client.live(), name=name)

    async def end(self, name: str, *, leaves: bool) -> None:
        client, task = self.clients.pop(name), self.tasks.pop(name)
        client.is_over = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client.lose_all()
        if leaves:
            # Without a coordinator at that moment it goes silently, as if it had died.
            with contextlib.suppress(KafkaError):
                await client.leave()

    def look(self) -> None:
        assert not self.ownership.problems, self.ownership.problems
        for name, task in self.tasks.items():
            if task.done():
                task.result()
                assert self.clients[name].fenced, f"{name} has stopped"
        group = next((one for one in self.coordinator.groups() if one.group_id == GROUP), None)
        if group is not None and group.members:
            now = group.GROUP_TYPE
            self.changes += bool(self._type and self._type != now)
            self._type = now

    async def settle(self) -> None:
        """Left alone, the members share all partitions."""
        for _ in range(SETTLING_SEC):
            if all(client.fenced for client in self.clients.values()):
                self.start(is_classic=False)
            await asyncio.sleep(1)
            self.look()
            if self.is_shared():
                return
        raise AssertionError(f"not shared by all: {self.ownership.owners}")

    def is_shared(self) -> bool:
        """True if the members have all partitions, about the same number each."""
        sizes = [len(client.has) for client in self.clients.values() if not client.fenced]
        most, every = max(sizes, default=0), len(TOPICS) * PARTITIONS
        return sum(sizes) == every and most <= -(-every // max(len(sizes), 1)) and not self.ownership.problems

    async def close(self) -> None:
        for name in tuple(self.clients):
            await self.end(name, leaves=False)


async def walk(brokers: Brokers, seed: int) -> int:
    """Returns how often the group, which had members, was found to have changed its type."""
    steps = Walk(brokers, seed)
    await steps.prepare()
    try:
        for _ in range(STEPS):
            await steps.step()
        steps.store.before_write = None
        await steps.settle()
    finally:
        await steps.close()
    return steps.changes


def forgets_what_members_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downgrading, "encoded", lambda *_: encode_assignment(1, {}))


def takes_members_for_owners_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_joins, "owned_partitions", lambda *_: {})


def stores_the_group_before_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    def record_first(group_id: str, changes: StoreChanges) -> list[Operation]:
        return sorted(
            operations_of(group_id, changes), key=lambda one: one.key.startswith(keys.GROUP_MEMBERS)
        )

    monkeypatch.setattr(shard, "operations_of", record_first)


@pytest.mark.parametrize(
    ("mistake", "seeds"),
    [
        (forgets_what_members_have, (45, 46)),
        (takes_members_for_owners_of_nothing, (60, 96)),
        (stores_the_group_before_its_members, (0, 36, 73)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None], seeds: Sequence[int]
) -> None:
    """By one of its known seeds."""
    mistake(monkeypatch)

    def finds(seed: int) -> bool:
        @scenario()
        async def play(brokers: Brokers) -> None:
            await walk(brokers, seed)

        try:
            play()
        except AssertionError as problem:
            return " takes it" in str(problem)
        return False

    assert any(finds(seed) for seed in seeds)


@pytest.mark.parametrize("seed", SEEDS)
@scenario()
async def test_no_partition_has_two_owners(brokers: Brokers, seed: int) -> None:
    await walk(brokers, seed)
