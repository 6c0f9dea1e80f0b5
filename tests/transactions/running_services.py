"""Coordinators of several brokers over one store in memory, and leaders that write markers when the test lets them.

Everything runs in virtual time: `asyncio.sleep` costs none.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.features import TRANSACTION_VERSION, encode_level
from kafscale.formats.topic_record import (
    encode_coordinator_record,
    encode_group_shard_record,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import CoordinatorRecord, GroupShardRecord, TopicRecord
from kafscale.metadata.store import (
    Changes,
    Compare,
    Delete,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
    TransactionResult,
)
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from kafscale.transactions.service import TransactionService
from tests.transactions.stores import CountedIds, marker_keys
from tests.transactions.values import NOW, ORDERS_ID

ID = "copier-7"
SHARD = keys.shard_of(ID)


class KillableStore:
    """A broker's way to the store, which ends at the `kills_at`-th transaction: before it, or after it.

    Whoever waits for it then waits in vain, as the tasks of a broker that was killed.
    """

    def __init__(self, inner: MemoryStore, kills_at: int = -1, *, after: bool = False) -> None:
        self._inner = inner
        self._kills_at = kills_at
        self._after = after
        self.transactions = 0
        self.killed = asyncio.Event()

    @property
    def max_operations(self) -> int:
        return self._inner.max_operations

    async def _alive(self) -> None:
        if self.killed.is_set():
            await asyncio.Event().wait()

    async def get(self, key: str) -> KeyValue | None:
        await self._alive()
        return await self._inner.get(key)

    async def range(self, prefix: str) -> Snapshot:
        await self._alive()
        return await self._inner.range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        await self._alive()
        self.transactions += 1
        if self.transactions == self._kills_at:
            if self._after:
                await self._inner.transact(compares, operations)
            self.killed.set()
            await self._alive()
        return await self._inner.transact(compares, operations)

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        return self._inner.watch(prefix)


class Running:
    """One broker's service, its view, and the time."""

    def __init__(self, store: MetadataStore, broker_id: int, settings: Settings | None = None) -> None:
        self.now_ms = NOW
        self.metrics = Metrics()
        self.view = ClusterView("test")
        self._feeder = ClusterViewFeeder(store, self.view)
        self.settings = settings or Settings(broker_id=broker_id)
        self.service = TransactionService(
            store, self.view, CountedIds(), self.settings, self.metrics, lambda: self.now_ms
        )
        self.coordinator = self.service.coordinator
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._feeding = asyncio.create_task(self._feeder.run())
        await self.view.ready()
        await self.service.start()

    async def close(self) -> None:
        assert self._feeding is not None
        self._feeding.cancel()
        await asyncio.gather(self._feeding, return_exceptions=True)
        await self.service.close()


@asynccontextmanager
async def running(
    store: MetadataStore, broker_id: int = 1, settings: Settings | None = None
) -> AsyncIterator[Running]:
    """A broker's service, started."""
    one = Running(store, broker_id, settings)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


async def claim(store: MetadataStore, broker_id: int, epoch: int, shard: int = SHARD) -> None:
    """Let the broker coordinate the shard."""
    record = GroupShardRecord(broker_id=broker_id, coordinator_epoch=epoch, sequence=0)
    owner = CoordinatorRecord(broker_id=broker_id, coordinator_epoch=epoch)
    await store.transact(
        [],
        [
            Put(keys.group_shard(shard), encode_group_shard_record(record)),
            Put(keys.coordinator(shard), encode_coordinator_record(owner)),
        ],
    )


async def put_topic(store: MetadataStore, topic: TopicRecord | None = None, level: int = 2) -> None:
    """A topic, `orders` if none is given, in a cluster with transactions."""
    record = topic or TopicRecord(name="orders", topic_id=ORDERS_ID, partition_count=9)
    await store.transact(
        [],
        [
            Put(keys.topic(record.name), encode_topic_record(record)),
            Put(keys.feature(TRANSACTION_VERSION), encode_level(level)),
        ],
    )


async def write_markers(store: MetadataStore) -> list[str]:
    """As leaders and group coordinators do: every marker key is deleted. Returns them."""
    found = list(await marker_keys(store))
    for first in range(0, len(found), store.max_operations):
        part = found[first : first + store.max_operations]
        await store.transact([], [Delete(key) for key in part])
    return found


async def write_markers_forever(store: MetadataStore) -> None:
    """Leaders that are always there."""
    while True:
        await write_markers(store)
        await asyncio.sleep(0.05)
