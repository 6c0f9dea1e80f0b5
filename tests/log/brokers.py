"""Brokers that lead partitions over one metadata store and one object store, in one loop: all but their network."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from kafscale.clocks import Clocks
from kafscale.cluster.new_topic import NewTopic
from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.cluster.topics import Topics
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats import object_keys
from kafscale.formats.index import LEGACY_VERSION
from kafscale.formats.partition_record import PartitionRecord, decode_partition_record
from kafscale.formats.topic_record import decode_leader_record
from kafscale.log.compaction.cleaning_work import CleaningInProcess
from kafscale.log.journal.partition_states import PartitionStates
from kafscale.log.log_parts import LogParts, LogSurroundings
from kafscale.log.partition import Partition
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.reading.segment_loader import SegmentLoader, read_sizes
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState, LeaderRecord
from kafscale.metadata.store import MetadataStore
from kafscale.objects.health import ObjectStoreHealth, health_policy
from kafscale.objects.request_meter import RequestMeter
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Prices
from kafscale.protocol.record_batch import read_header, walk
from kafscale.protocol.records import decode_records
from kafscale.settings.broker import Settings
from tests.formats.segments import parse_segment, verify_segment
from tests.log.outcome import Outcome
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.sealing import seal, store_record
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_MS
from tests.support.watched_loop import watched

NAMESPACE = "default"
TTL_SEC = 10
A_WHILE_SEC = 1.0
"""Much longer than it takes the brokers to hear of each other and to make their moves."""
PROGRESS_SEC = 0.2
"""More than a journal's progress takes to be in the metadata store."""

AN_HOUR_MS = 3_600_000


class BrokerParts:
    """The parts of a broker that lead and follow partitions, put together as its process does it."""

    def __init__(
        self, metadata: MetadataStore, objects: ControlledStore, broker_id: int, settings: Settings
    ) -> None:
        self.broker_id = broker_id
        self.metrics = Metrics()
        self.meter = RequestMeter(self.metrics, Prices(), NAMESPACE)
        self.view = ClusterView("test")
        journals = itertools.count()
        self.registration = Registration(
            metadata, TTL_SEC, new_journal_id=lambda: f"{broker_id}-{id(self):x}-{next(journals)}"
        )
        self.tenure = Tenure(self.registration)
        self.pool = SlabPool(0)
        self.budget = MemoryBudget(settings.buffer_bytes)
        loader = SegmentLoader(
            objects,
            objects,
            NAMESPACE,
            self.pool,
            self.metrics,
            sizes=read_sizes(settings.cache_size_bytes),
            index_cache_bytes=settings.index_cache_size_bytes,
            index_version=lambda: LEGACY_VERSION,
        )
        self.reader = LogReader(loader, settings.cache_size_bytes, 0, self.pool, self.metrics)
        tokens = itertools.count()
        around = LogSurroundings(
            settings=replace(settings, broker_id=broker_id),
            metrics=self.metrics,
            metadata=metadata,
            objects=objects,
            health=ObjectStoreHealth(health_policy(settings), self.now_ms),
            view=self.view,
            pool=self.pool,
            budget=self.budget,
            lease=lambda: self.tenure.lease,
            end_lease=self.tenure.end,
            unrenewed_ms=self.registration.unrenewed_ms,
            new_random=lambda: random.Random(broker_id),
            new_token=lambda: f"{broker_id:04x}{next(tokens):04x}",
            shared_cost=self.meter.shared,
            cleaning=CleaningInProcess(),
            clocks=Clocks(now_ms=self.now_ms, steady_ms=self.now_ms),
        )
        self.parts = LogParts(around, self.reader)
        self.logs, self.service = self.parts.logs, self.parts.partitions
        self.checkpointer = self.parts.checkpointer
        self.topics = Topics(metadata, self.view, settings)
        self._metadata = metadata
        self._tasks: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    # --- its life

    async def start(self) -> None:
        """It leads what it should as soon as the others let it go."""
        broker = BrokerRecord(broker_id=self.broker_id, host="host", port=1, state=BrokerState.STARTING)
        await self.registration.register(broker)
        self._begin(ClusterViewFeeder(self._metadata, self.view).run())
        await self._begin_journal()
        self._begin(self.parts.markers.run())
        self._begin(self.tenure.run(self.service, on_registered=self._begin_journal))
        await self.view.ready()
        await self.view.wait_until(lambda: self.view.broker_state(self.broker_id) is not None)
        await self.service.start()
        await self.registration.announce(BrokerState.RUNNING)

    async def _begin_journal(self) -> None:
        await self.parts.begin_journal(self.registration.broker.journal_id)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def stop(self) -> None:
        """In good order: others lead before it ends."""
        await self.registration.announce(BrokerState.STOPPING)
        await self.view.wait_until(
            lambda: self.view.broker_state(self.broker_id) in (BrokerState.STOPPING, None)
        )
        await self.service.handed_over()
        await self.logs.drain()
        await self.kill()
        await self.registration.close()

    async def kill(self) -> None:
        """Its process ends; its lease is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.service.close()
        await self.parts.close()

    # --- what it does

    def led(self) -> set[tuple[str, int]]:
        """The partitions that it believes it leads."""
        return {(one.id.topic, one.id.index) for one in self.logs.partitions()}

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.logs.partition(topic, index)
        assert partition is not None
        return partition

    def produce(self, topic: str, index: int, *values: bytes, **fields: Any) -> "asyncio.Future[int]":
        """The producer's answer: the first offset, or `RefusedError`. The broker must lead the partition."""
        partition = self.partition(topic, index)
        assert partition.is_led
        log = self.logs.open_now(partition)
        assert log is not None
        batch = memoryview(wire.batch(list(values), **fields))
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        grown = log.append(
            batch, read_header(batch, 0), partition.rules, self.now_ms(), self.pool, Outcome(told)
        )
        self.budget.charge(grown)
        self.logs.flusher.appended(partition)
        return told

    async def seal(self, topic: str, index: int = 0) -> None:
        """Make a segment of what the journal has of the partition; its record names it then."""
        await seal(self.parts, self.partition(topic, index))

    async def store_record(self, topic: str, index: int = 0) -> None:
        """Store the partition's record with all that is published."""
        await store_record(self.parts, self.partition(topic, index))

    async def produce_segment(self, topic: str, index: int, *values: bytes, **fields: Any) -> int:
        """Produce a batch that becomes a segment of its own; returns its first offset."""
        offset = await self.produce(topic, index, *values, **fields)
        await self.seal(topic, index)
        return offset


class Cluster:
    """The stores and the brokers."""

    def __init__(self, **settings: Any) -> None:
        """With a flush interval nothing is flushed before its time unless `flushes_per_sec` says so."""
        if "flush_interval_ms" in settings:
            settings = {"flushes_per_sec": 0, **settings}
        self.metadata = MemoryStore()
        self.objects = ControlledStore()
        self.brokers: list[BrokerParts] = []
        self.closing = AsyncExitStack()
        """Additions of a test are closed before the brokers are."""
        self._settings = replace(Settings(), **settings)

    def broker(self, broker_id: int, metadata: MetadataStore | None = None) -> BrokerParts:
        """One that is not started yet."""
        settings = replace(self._settings, broker_id=broker_id)
        broker = BrokerParts(metadata or self.metadata, self.objects, broker_id, settings)
        self.brokers.append(broker)
        return broker

    async def start(self, *broker_ids: int) -> list[BrokerParts]:
        """One after the other; each has its share when this returns."""
        started = [self.broker(broker_id) for broker_id in broker_ids]
        for broker in started:
            await broker.start()
        await self.settle()
        return started

    async def settle(self) -> None:
        await asyncio.sleep(A_WHILE_SEC)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = NewTopic(name=name, partition_count=partitions, configs=configs)
        await self.brokers[0].topics.create(topic, timeout_ms=PATIENCE_MS)
        await self.settle()

    async def leaders(self, topic: str) -> dict[int, LeaderRecord]:
        """Who leads the partitions by the metadata store."""
        return {
            keys.topic_and_partition(item.key)[1]: decode_leader_record(item.key, item.value)
            for item in (await self.metadata.range(keys.LEADERS)).items
            if keys.topic_and_partition(item.key)[0] == topic
        }

    async def check_led_by(self, topic: str, brokers: Iterable[BrokerParts]) -> None:
        """By the store these brokers, and nobody else, lead the topic's partitions, and they know."""
        by_store = {index: leader.broker_id for index, leader in (await self.leaders(topic)).items()}
        believed = {
            index: broker.broker_id for broker in brokers for name, index in broker.led() if name == topic
        }
        record = self.brokers[0].view.topic(topic)
        assert record is not None
        assert by_store == believed
        assert sorted(by_store) == list(range(record.partition_count))

    async def record(self, topic: str, index: int = 0) -> PartitionRecord:
        """The partition's record as it is stored; its leader's journal may have more."""
        found = await self.metadata.get(keys.partition(topic, index))
        assert found is not None
        return decode_partition_record(found.key, found.value)

    async def state(self, topic: str, index: int = 0) -> PartitionRecord:
        """The record with what the leader's journal has behind it, a moment later: its progress is told by then."""
        await asyncio.sleep(PROGRESS_SEC)
        found = await PartitionStates(self.metadata, self.objects, NAMESPACE).read(topic, index)
        assert found is not None
        return found[0]

    async def published(self, topic: str, index: int = 0) -> dict[int, bytes]:
        """Every published value by its offset, from the objects that the partition's state names."""
        values: dict[int, bytes] = {}
        for reference in (await self.state(topic, index)).segments:
            key = object_keys.key_of_reference(NAMESPACE, topic, index, reference)
            whole = await self.objects.inner.get(key)
            data = whole[reference.start : reference.start + reference.size_bytes]
            segment = parse_segment(key, data)
            verify_segment(segment)
            for position, header in walk(segment.body, 0, len(segment.body), key):
                # A sealed segment may have slices of several leaders, and the newest epoch.
                assert header.partition_leader_epoch <= reference.leader_epoch
                assert header.partition_leader_epoch == reference.leader_epoch or not reference.start
                for one in decode_records(segment.body[position : position + header.size_bytes], 1 << 20):
                    assert one.value is not None
                    assert one.offset not in values
                    values[one.offset] = one.value
        return values

    async def close(self) -> None:
        await self.closing.aclose()
        for broker in self.brokers:
            await broker.kill()
            assert broker.budget.used_bytes == 0 or broker.led(), "memory was not given back"
        await self.metadata.close()


Scenario = Callable[[Cluster], Coroutine[Any, Any, None]]


def cluster_scenario(**settings: Any) -> Callable[[Scenario], Callable[[], None]]:
    """A test over a `Cluster` in virtual time; nothing may still run after it, or have failed unheard."""

    def decorate(body: Scenario) -> Callable[[], None]:
        async def play() -> None:
            async with AsyncExitStack() as stack:
                cluster = Cluster(**settings)
                stack.push_async_callback(cluster.close)
                await body(cluster)

        def test() -> None:
            run_virtually(watched(play()))

        test.__name__, test.__qualname__ = body.__name__, body.__qualname__
        test.__module__, test.__doc__ = body.__module__, body.__doc__
        return test

    return decorate
