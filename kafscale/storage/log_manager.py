"""The partitions that this broker holds: opened when it comes to lead them, closed when their topic goes."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Iterable, Iterator

from kafscale.cache.single_flight import SingleFlight
from kafscale.metadata.leadership import Claimed, Leadership
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.topic_configs import CompressionType, MessageTimestampType, TopicConfig, effective
from kafscale.metadata.view import ClusterView
from kafscale.ops.metrics import Metrics
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings import Settings
from kafscale.storage.checkpoint import EMPTY_CHECKPOINT
from kafscale.storage.checkpointer import Checkpointer
from kafscale.storage.flusher import Flusher
from kafscale.storage.log_reader import LogReader
from kafscale.storage.memory_budget import MemoryBudget
from kafscale.storage.partition import Partition, PartitionId
from kafscale.storage.partition_log import AppendRules, PartitionLog
from kafscale.storage.publisher import Publisher
from kafscale.storage.slab import SlabPool

logger = logging.getLogger(__name__)

_SETTLE_SEC = 5.0

_CODECS = {
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


def append_rules(config: TopicConfig) -> AppendRules:
    """What a topic's configuration says of its appends."""
    return AppendRules(
        codec=_CODECS.get(config.compression_type),
        log_append_time=config.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME,
        segment_bytes=config.segment_bytes,
    )


class LogManager:
    """Partitions by topic and number, and the parts that serve them."""

    def __init__(
        self,
        view: ClusterView,
        leadership: Leadership,
        flusher: Flusher,
        publisher: Publisher,
        reader: LogReader,
        checkpointer: Checkpointer,
        pool: SlabPool,
        budget: MemoryBudget,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self.flusher = flusher
        self.publisher = publisher
        self.reader = reader
        self.pool = pool
        self.budget = budget
        self._view = view
        self._leadership = leadership
        self._checkpointer = checkpointer
        self._settings = settings
        self._metrics = metrics
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._openings: SingleFlight[Partition, PartitionLog] = SingleFlight()
        self._claims: set[asyncio.Task[None]] = set()
        self._being_claimed: set[tuple[uuid.UUID, int]] = set()
        self._numbers = itertools.count()

    async def start(self) -> None:
        """Lead every partition of every topic, and follow the topics' changes from now on."""
        topics = list(self._view.topics())
        ids = {(topic.topic_id, index) for topic in topics for index in range(topic.partition_count)}
        self._being_claimed |= ids
        self._view.subscribe(self._topic_changed)
        await self._claim((topic.name, index) for topic in topics for index in range(topic.partition_count))
        self._being_claimed -= ids

    # --- looking up

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, None when this broker does not hold it."""
        partitions = self._partitions.get(topic)
        return None if partitions is None else partitions.get(index)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that this broker holds."""
        for partitions in self._partitions.values():
            yield from partitions.values()

    @property
    def partition_count(self) -> int:
        """How many partitions this broker holds."""
        return sum(map(len, list(self._partitions.values())))

    def log_end_offset(self, topic: str, index: int) -> int | None:
        """The partition's published log end offset, for any thread; None when this broker does not lead it."""
        partition = self.partition(topic, index)
        return partition.record.log_end_offset if partition is not None and partition.is_led else None

    async def size_bytes(self, topic: str, index: int) -> int | None:
        """The bytes of the partition's published segments; None when this broker does not hold it."""
        partition = self.partition(topic, index)
        if partition is None:
            return None
        if partition.references is None:
            await self.open(partition)
        return 0 if partition.references is None else partition.references.size_bytes

    # --- opening

    def open_now(self, partition: Partition) -> PartitionLog | None:
        """The partition's log, if it is open or can be opened without reading anything."""
        if partition.log is None and partition.is_led and not partition.record.checkpoint_key:
            return partition.open(EMPTY_CHECKPOINT)
        return partition.log

    async def open(self, partition: Partition) -> PartitionLog:
        """The partition's log, opened for the first who asks. Raises `CorruptDataError`, `StoreError`."""
        log = self.open_now(partition)
        if log is not None:
            return log
        return await self._openings.run(partition, lambda: self._open(partition))

    async def _open(self, partition: Partition) -> PartitionLog:
        return partition.open(await self._checkpointer.load(partition))

    # --- topics come, change and go

    async def _claim(self, wanted: Iterable[tuple[str, int]], topic: str | None = None) -> None:
        for claimed in await self._leadership.claim(wanted, topic):
            self._add(claimed)

    def _add(self, claimed: Claimed) -> None:
        record = self._view.topic(claimed.topic)
        if record is None:
            return
        config = effective(record.configs, self._settings)
        partition = Partition(
            PartitionId(claimed.topic, claimed.index),
            next(self._numbers),
            claimed.record,
            claimed.revision,
            config,
            append_rules(config),
        )
        self._partitions.setdefault(claimed.topic, {})[claimed.index] = partition

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if after is None or self._view.topic(after.name) is None:
            return
        held = self._partitions.get(after.name, {})
        if before is not None and before.configs != after.configs:
            config = effective(after.configs, self._settings)
            rules = append_rules(config)
            for partition in held.values():
                partition.config, partition.rules = config, rules
        wanted = {
            (after.topic_id, index)
            for index in range(after.partition_count)
            # A second claim would only fence the partition that the first one gains.
            if index not in held and (after.topic_id, index) not in self._being_claimed
        }
        if wanted:
            self._being_claimed |= wanted
            claim = self._claim(((after.name, index) for _, index in wanted), after.name)
            task = asyncio.create_task(claim, name=f"claim {after.name}")
            self._claims.add(task)
            task.add_done_callback(lambda _: self._being_claimed.difference_update(wanted))
            task.add_done_callback(self._claims.discard)

    async def close_topic(self, name: str) -> None:
        """Accept nothing more for the topic, end its flushes, and forget it. No error when it is not held."""
        held = self._partitions.pop(name, {})
        for partition in held.values():
            partition.is_led = False
        for partition in held.values():
            await self.flusher.settle(partition, _SETTLE_SEC)
            self.reader.forget(partition)
            self.flusher.abandon(
                partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was deleted"
            )
        self._metrics.forget_topic(name)

    # --- stopping

    async def drain(self) -> None:
        """Publish everything that is buffered; returns when all of it is."""
        self.flusher.drain()
        while flushes := [p.flush_task for p in self.partitions() if p.flush_task is not None]:
            await asyncio.wait(flushes)

    def end_waiting(self) -> None:
        """Tell everybody who waits for more records that none will come."""
        for partition in self.partitions():
            partition.notify_closed()

    async def close(self) -> None:
        """End everything that is under way, whether done or not."""
        tasks = list(self._claims)
        tasks += [p.flush_task for p in self.partitions() if p.flush_task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._openings.close()
        await self._checkpointer.close()
        await self.reader.close()
