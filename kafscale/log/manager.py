"""The partitions that this broker serves: those it leads, from their claim to their end, and those it follows."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from kafscale.cache.single_flight import SingleFlight
from kafscale.cluster.leadership import Claimed
from kafscale.cluster.view import ClusterView
from kafscale.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.partition_record import PartitionRecord, SegmentReference, is_same_log
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.claims_under_way import ClaimsUnderWay
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.leader_check import is_leader_still
from kafscale.log.partition import Partition
from kafscale.log.partition_factory import PartitionFactory
from kafscale.log.partition_log import PartitionLog
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.writing.flusher import Flusher
from kafscale.log.writing.publisher import Publisher
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore
from kafscale.ops import metric_families
from kafscale.ops.metrics import LeadershipChange, Metrics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_SETTLE_SEC = 5.0
# How long a partition that goes to another broker may take to publish what was appended to it.
_RESIGN_SEC = 5.0


class LogManager:
    """Partitions by topic and number, and the parts that serve them. `claims` are on the way to be led.

    `on_lost` is told of partitions that this broker leads no longer, without having been asked to let go;
    `on_missing` of a segment that a reader found no object of although the partition's record names it.
    """

    def __init__(
        self,
        view: ClusterView,
        metadata: MetadataStore,
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
        self.on_lost: Callable[[str, int], None] = lambda topic, index: None
        self.on_missing: Callable[[Partition, SegmentReference], None] = lambda partition, reference: None
        self.claims = ClaimsUnderWay()
        self._checkpointer = checkpointer
        self.metrics = metrics
        self._metadata = metadata
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._led_changes = 0
        self._factory = PartitionFactory(view, settings, metrics.background_failures)
        self._followed = FollowedPartitions(metadata, self._factory.followed)
        self._openings: SingleFlight[Partition, None] = SingleFlight()
        self._closings = TaskOwner()
        flusher.on_lost = self._lost
        view.subscribe(self._topic_changed)

    # --- looking up

    @property
    def readable_changes(self) -> int:
        """Grows whenever `readable` may from now on give another answer than before."""
        return self._led_changes + self._followed.changes

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, None when this broker does not lead it."""
        partitions = self._partitions.get(topic)
        return None if partitions is None else partitions.get(index)

    def readable(self, topic: str, index: int) -> Partition | None:
        """The partition if it can be read here at once: it is led or followed."""
        return self.partition(topic, index) or self._followed.get(topic, index)

    async def follow(self, topic: str, index: int) -> Partition | None:
        """The partition, to read what its leader publishes; None when there is none.

        Raises `StoreError`, `CorruptDataError`.
        """
        return self.partition(topic, index) or await self._followed.follow(topic, index)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that this broker leads."""
        for partitions in self._partitions.values():
            yield from partitions.values()

    @property
    def partition_count(self) -> int:
        """How many partitions this broker leads."""
        return sum(map(len, list(self._partitions.values())))

    @property
    def followed_count(self) -> int:
        """How many partitions this broker follows."""
        return len(self._followed)

    def register_gauges(self, metrics: Metrics) -> None:
        """Export how many partitions there are."""
        metrics.gauge(metric_families.PARTITIONS_LED, lambda: self.partition_count)
        metrics.gauge(metric_families.PARTITIONS_FOLLOWED, lambda: self.followed_count)

    def log_end_offset(self, topic: str, index: int) -> int | None:
        """The partition's published log end offset, for any thread; None when this broker does not lead it."""
        partition = self.partition(topic, index)
        return partition.record.log_end_offset if partition is not None and partition.is_led else None

    async def size_bytes(self, topic: str, index: int) -> int | None:
        """The bytes of the partition's published segments; None when this broker does not lead it.

        Raises `CorruptDataError`, `StoreError`.
        """
        partition = self.partition(topic, index)
        if partition is None:
            return None
        await self.load(partition)
        return 0 if partition.references is None else partition.references.size_bytes

    # --- opening

    def open_now(self, partition: Partition) -> PartitionLog | None:
        """The log of a partition that is led, if it is open or can be opened without reading anything."""
        if partition.log is None and partition.is_led and not partition.record.checkpoint_key:
            return partition.open(EMPTY_CHECKPOINT)
        return partition.log

    async def load(self, partition: Partition) -> None:
        """See to it that the partition's references are there, and the log of one that is led.

        Raises `CorruptDataError`, `StoreError`.
        """
        # Again, if what the watch told meanwhile has made the references incomplete before anybody used them.
        while self.open_now(partition) is None and (partition.is_led or partition.references is None):
            await self._openings.run(partition, lambda: self._load(partition))

    async def open(self, partition: Partition) -> PartitionLog | None:
        """The log of a partition, None when it is not led any more. Raises `CorruptDataError`, `StoreError`."""
        await self.load(partition)
        return partition.log

    async def _load(self, partition: Partition) -> None:
        while True:
            key = partition.record.checkpoint_key
            try:
                checkpoint = await self._checkpointer.load(partition)
            except ObjectNotFoundError:
                # A record that is out of date names a checkpoint that was superseded and removed.
                found = await self._followed.read(partition)
                if not partition.is_followed or found is None or found[0].checkpoint_key == key:
                    raise
                if not self._is_same(partition, found[0]):
                    raise
                partition.follow(*found)
                continue
            if partition.record.checkpoint_key != key:
                continue
            if partition.is_led:
                partition.open(checkpoint)
            else:
                partition.load(checkpoint)
            return

    async def read_again(self, partition: Partition) -> None:
        """Take what the metadata store says of a partition that is followed, and let its references be loaded anew.

        What was merged or has expired since they were loaded is not told by the watch. Raises `StoreError`,
        `CorruptDataError`.
        """
        found = await self._followed.read(partition)
        if found is not None:
            if not self._is_same(partition, found[0]):
                raise StoreUnavailableError(f"{partition.id} is a partition of another topic by now")
            partition.follow(*found)
        partition.references = None

    def _is_same(self, partition: Partition, record: PartitionRecord) -> bool:
        """Whether the record that was read is of the log that is served; if not, it is followed no longer."""
        if is_same_log(record, partition.record):
            return True
        if partition.is_followed:
            self._followed.drop_if(partition)
        return False

    async def is_same_still(self, partition: Partition) -> bool:
        """Whether the metadata store has the log that is served here, and not another topic's of the same name.

        Raises `StoreError`, `CorruptDataError`.
        """
        found = await self._followed.read(partition)
        return found is not None and self._is_same(partition, found[0])

    async def check_beyond_end(self, partition: Partition, offset: int) -> ErrorCode:
        """Why `offset` is above the log end offset as it is known here.

        OFFSET_OUT_OF_RANGE only when the metadata store agrees: a consumer that hears it may skip records or
        begin anew, and a broker that was replaced, or whose watch is behind, knows too little.
        """
        try:
            found = await self._followed.read(partition)
        except StoreError as problem:
            logger.warning("could not check an offset", extra={"problem": str(problem)})
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        record, revision = found
        if not self._is_same(partition, record):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if offset > record.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if partition.is_followed:
            partition.follow(record, revision)
        elif record.leader_epoch != partition.record.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            # It is a publication of this very broker, of which it is about to hear.
            await partition.publication_known()
            if offset > partition.record.log_end_offset:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    async def is_leader_still(self, partition: Partition) -> bool:
        """Whether no other broker led when the metadata store was asked. Raises `StoreError`."""
        return (
            await is_leader_still(self._metadata, partition)
            and self.partition(partition.id.topic, partition.id.index) is partition
        )

    # --- leading

    def lead(self, claimed: Claimed) -> None:
        """Serve a partition that was claimed."""
        partition = self._factory.led(claimed.topic, claimed.index, claimed.record, claimed.revision)
        if partition is None:
            return  # Its topic is being deleted, and with it the claim.
        self._partitions.setdefault(claimed.topic, {})[claimed.index] = partition
        self._led_changes += 1
        self._followed.drop(claimed.topic, claimed.index)
        self.claims.end((claimed.topic, claimed.index))
        self.metrics.leadership_changes[LeadershipChange.GAINED] += 1

    async def resign(self, partition: Partition) -> None:
        """Lead the partition no longer: accept nothing more, and publish what was accepted.

        What cannot be published in time is refused with NOT_LEADER_OR_FOLLOWER. Returns when another broker
        can lead.
        """
        partition.is_led = False
        if not await self.flusher.drained(partition, _RESIGN_SEC):
            await self.flusher.settle(partition, 0)
        if self._forget(partition):
            self.metrics.leadership_changes[LeadershipChange.HANDED_OVER] += 1
        self.flusher.abandon(
            partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker is to lead this partition"
        )

    def _lost(self, partition: Partition) -> None:
        if self._forget(partition):
            self.metrics.leadership_changes[LeadershipChange.LOST] += 1
            self.on_lost(partition.id.topic, partition.id.index)

    def _forget(self, partition: Partition) -> bool:
        """Hold the partition no longer; False when this broker had ceased to."""
        topic, index = partition.id.topic, partition.id.index
        if self.partition(topic, index) is not partition:
            return False
        del self._partitions[topic][index]
        self._led_changes += 1
        if not self._partitions[topic]:
            del self._partitions[topic]
        return True

    # --- topics change and go

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if after is None or after.state is not TopicState.ACTIVE:
            gone = before or after
            if gone is not None and self._factory.has_made(gone.name):
                # At once: the next event may be that a topic of this name is there again.
                held = self._drop_topic(gone.name)
                self._closings.spawn(self._end(gone.name, held), f"close {gone.name}")
        elif before is not None and before.configs != after.configs:
            self._factory.configure(after, self._of_topic(after.name))

    def _of_topic(self, name: str) -> list[Partition]:
        """The topic's partitions that are led or followed here."""
        followed = (partition for partition in self._followed if partition.id.topic == name)
        return [*self._partitions.get(name, {}).values(), *followed]

    async def close_topic(self, name: str) -> None:
        """Serve the topic no longer, end its flushes, and forget it. No error when it is not held."""
        await self._end(name, self._drop_topic(name))

    def _drop_topic(self, name: str) -> list[Partition]:
        """Serve the topic no longer; returns what was led of it, whose flushes are still to be ended."""
        self._factory.forget(name)
        for partition in self._of_topic(name):
            self.reader.forget(partition)
        held = list(self._partitions.pop(name, {}).values())
        self._led_changes += 1
        self._followed.drop_topic(name)
        for partition in held:
            partition.is_led = False
        return held

    async def _end(self, name: str, held: Sequence[Partition]) -> None:
        for partition in held:
            await self.flusher.settle(partition, _SETTLE_SEC)
            self.reader.forget(partition)
            self.flusher.abandon(
                partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was deleted"
            )
        self.metrics.forget_topic(name)

    # --- stopping

    async def drain(self) -> None:
        """Publish everything that is buffered; returns when all of it is."""
        self.flusher.drain()
        while flushes := [task for partition in self.partitions() for task in partition.flush_tasks]:
            await asyncio.wait(flushes)

    def end_waiting(self) -> None:
        """Tell everybody who waits for more records that none will come."""
        for partition in (*self.partitions(), *self._followed):
            partition.notify_closed()

    async def close(self) -> None:
        """End everything that is under way, whether done or not."""
        await self._closings.close()
        tasks = [task for partition in self.partitions() for task in partition.flush_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.publisher.close()
        await self._followed.close()
        await self._openings.close()
        await self._checkpointer.close()
        await self.reader.close()
