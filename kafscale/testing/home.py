"""The thread, the stores and the brokers of one cluster, and what a test asks of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kafscale.cluster.view import ClusterView
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadataStore
from kafscale.objects.memory_store import MemoryStore as MemoryObjectStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from kafscale.testing.interventions import rebalance
from kafscale.testing.lives import LivesLoop
from kafscale.testing.loop_thread import LoopThread
from kafscale.testing.node import Node, Stores
from kafscale.testing.orders import OrderedFaults
from kafscale.testing.records import Headers, Record, RecordMetadata, Text, to_bytes, to_headers
from kafscale.testing.requests import EARLIEST, LATEST, RequestError

T = TypeVar("T")

PATIENCE_SEC = 30.0
"""How long a call waits for what a broker does by itself, such as claiming a partition."""

_LOOK_SEC = 0.001
_RETRIED = frozenset(
    code.name
    for code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)


class Home:
    """Brokers on one event loop, over the same stores in memory. Coroutines run on that loop."""

    def __init__(self, name: str, settings: Sequence[Settings], *, serves_metrics: bool) -> None:
        longest_step_sec = min(one.lease_ttl_sec for one in settings) / 4
        self.thread = LoopThread(name, lambda: LivesLoop(longest_step_sec))
        self.nodes: list[Node] = []
        self.faults = OrderedFaults()
        self._settings = settings
        self._serves_metrics = serves_metrics
        self._written = 0

    def start(self) -> None:
        """Start the thread and all brokers. Raises `StartupError`."""
        if self.thread.is_running:
            raise RuntimeError(f"{self.thread.name} runs already")
        self.thread.start()
        try:
            self.thread.call(self._start())
        except BaseException:
            self.stop()
            raise

    async def _start(self) -> None:
        clocks = self.thread.loop.clocks
        objects = MemoryObjectStore(clocks.now_ms)
        stores = Stores(MemoryMetadataStore(), objects, self.faults, clocks)
        self.nodes[:] = [
            Node(settings, stores, serves_metrics=self._serves_metrics) for settings in self._settings
        ]
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self._settled()

    def stop(self) -> None:
        """Stop everything; what the stores had is gone."""
        if not self.thread.is_running:
            return
        for faults in (self.faults, *(node.faults for node in self.nodes)):
            faults.clear()
        try:
            self.thread.call(self._stop())
        finally:
            self.thread.stop()
            self.nodes.clear()

    async def _stop(self) -> None:
        try:
            await asyncio.gather(*(node.stop() for node in self.nodes))
        finally:
            for node in self.nodes:
                node.close()

    async def restart(self, node: Node) -> None:
        """See `KafkaBroker.restart`."""
        if node.is_up:
            await node.stop()
        await node.start()
        await self._settled()

    async def _settled(self) -> None:
        """Wait until the brokers that run know of one another."""
        ids = [node.broker_id for node in self._up()]
        await self._shown(lambda view: all(view.broker(broker_id) for broker_id in ids))

    async def _shown(self, condition: Callable[[ClusterView], bool]) -> None:
        """Wait until every broker sees it."""
        for node in self._up():
            view = node.process.serving.view
            await view.wait_until(partial(condition, view))

    def _up(self) -> list[Node]:
        up = [node for node in self.nodes if node.is_up]
        if not up:
            raise RuntimeError("no broker runs: start one with restart()")
        return up

    def _any(self) -> Node:
        return self._up()[0]

    # --- topics

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """See `KafkaBroker.create_topic`."""
        node = self._any()
        await node.run(node.requests.create_topic(name, partitions, configs or {}))
        await self._shown(lambda view: len(view.leaders(name)) == self._any().requests.partition_count(name))
        return name

    async def delete_topic(self, name: str) -> None:
        """See `KafkaBroker.delete_topic`."""
        node = self._any()
        await node.run(node.requests.delete_topic(name))
        await self._shown(lambda view: view.topic(name, include_deleting=True) is None)

    async def topics(self) -> list[str]:
        """See `KafkaBroker.topics`."""
        return self._any().requests.topics()

    # --- records

    async def produce(
        self,
        topic: str,
        value: Text | None,
        key: Text | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """See `KafkaBroker.produce`."""
        key_bytes = to_bytes("the key", key)
        if partition is None:
            partition = self._any().requests.partition_for(topic, key_bytes, self._written)
            self._written += 1
        else:
            self._any().requests.check_partition(topic, partition)
        record = Record(
            topic,
            partition,
            -1,
            self.thread.loop.clocks.now_ms() if timestamp_ms is None else timestamp_ms,
            key_bytes,
            to_bytes("the value", value),
            tuple(to_headers(headers)),
        )
        return await self._retried(partial(self._produce, record))

    async def _produce(self, record: Record) -> RecordMetadata:
        node = self._leader(record.topic, record.partition)
        return await node.run(node.requests.produce(record))

    async def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """See `KafkaBroker.records`."""
        count = self._any().requests.partition_count(topic)
        if partition is not None:
            self._any().requests.check_partition(topic, partition)
        found: list[Record] = []
        for index in range(count) if partition is None else [partition]:
            found += await self._retried(partial(self._read, topic, index))
        return found

    async def _read(self, topic: str, partition: int) -> list[Record]:
        start, end = await self._bounds_of(topic, partition)
        node = self._leader(topic, partition)
        return await node.run(node.requests.read(topic, partition, start, end))

    def _leader(self, topic: str, partition: int) -> Node:
        """The leader; any broker if none is known."""
        up = self._up()
        record = up[0].process.serving.view.leader(topic, partition)
        leaders = [node for node in up if record is not None and node.broker_id == record.broker_id]
        return (leaders or up)[0]

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The same again while no broker leads the partition, as clients do."""
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            try:
                return await attempt()
            except RequestError as problem:
                if problem.code not in _RETRIED or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_LOOK_SEC)

    async def wait_for_records(self, topic: str, count: int, timeout_sec: float = 10.0) -> list[Record]:
        """See `KafkaBroker.wait_for_records`."""
        deadline = time.monotonic() + timeout_sec
        while True:
            found = await self._count(topic)
            if found >= count:
                return await self.records(topic)
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic!r} has {found} records after {timeout_sec} s, not {count}")
            await asyncio.sleep(_LOOK_SEC)

    async def _count(self, topic: str) -> int:
        """The offsets of the topic that are in use, which without compaction and transactions are its records."""
        return sum(end - start for start, end in (await self._bounds(topic)).values())

    async def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """The log start offset and the log end offset of each partition."""
        return {
            index: await self._retried(partial(self._bounds_of, topic, index))
            for index in range(self._any().requests.partition_count(topic))
        }

    async def _bounds_of(self, topic: str, partition: int) -> tuple[int, int]:
        node = self._leader(topic, partition)
        return (
            await node.run(node.requests.offset(topic, partition, EARLIEST)),
            await node.run(node.requests.offset(topic, partition, LATEST)),
        )

    # --- groups

    def _coordinator(self, group: str) -> tuple[Node, GroupCoordinator]:
        """The coordinator of the group. Raises `RequestError` while it has none."""
        for node in self._up():
            groups = node.process.serving.services.groups
            try:
                groups.describe(group)
            except KafkaError:
                continue
            return node, groups
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE.name, f"no broker coordinates group {group!r} now"
        )

    async def rebalance(self, group: str) -> None:
        """See `KafkaBroker.rebalance`."""
        node, groups = self._coordinator(group)
        await node.run(rebalance(groups, group))

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """See `KafkaBroker.committed`."""
        node, groups = self._coordinator(group)
        found = await node.run(groups.fetch_offsets(group, require_stable=False))
        return {partition: found.committed[partition].offset for partition in sorted(found.committed)}

    async def wait_until_consumed(self, topic: str, group: str, timeout_sec: float = 10.0) -> None:
        """See `KafkaBroker.wait_until_consumed`."""
        deadline = time.monotonic() + timeout_sec
        while True:
            left = await self._left(topic, group)
            if not left:
                return
            if time.monotonic() > deadline:
                text = ", ".join(f"partition {index}: {count}" for index, count in left.items())
                raise TimeoutError(
                    f"group {group!r} has not consumed topic {topic!r} after {timeout_sec} s; left are {text}"
                )
            await asyncio.sleep(_LOOK_SEC)

    async def _left(self, topic: str, group: str) -> dict[int, int]:
        """The records of each partition that the group has not committed to have consumed, where there are any."""
        committed = await self._retried(lambda: self.committed(group))
        left = {}
        for index, (start, end) in (await self._bounds(topic)).items():
            count = end - max(start, committed.get((topic, index), 0))
            if count > 0:
                left[index] = count
        return left
