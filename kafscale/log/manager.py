"""The partitions that this broker serves: those it leads, from claim to close, and those it follows."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from kafscale.cache.single_flight import SingleFlight
from kafscale.cluster.leadership import Claimed
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.claims_in_flight import ClaimsInFlight
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.journal.broker_journal import BrokerJournal, BrokerJournals
from kafscale.log.journal.followed_journal import JournalReader
from kafscale.log.leader_check import is_leader_still
from kafscale.log.leadership.events import Event
from kafscale.log.leadership.states import State
from kafscale.log.led_partitions import LedPartitions, StoredTopic
from kafscale.log.partition import Partition
from kafscale.log.partition_factory import PartitionFactory
from kafscale.log.partition_log import PartitionLog
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.stored_records import StoredRecords
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.log.writing.flusher import Flusher
from kafscale.log.writing.record_writer import FencedError, RecordWriter
from kafscale.log.writing.segment_buffer import AppendWaiter
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.record_batch import BatchHeader
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_SETTLE_SEC = 5.0
# How long a partition that goes to another broker may take to publish what was appended to it.
_RESIGN_SEC = 5.0


class LogManager:
    """Partitions by topic and number, and the parts that serve them. `claims` are those that may be led soon."""

    def __init__(
        self,
        view: ClusterView,
        metadata: MetadataStore,
        flusher: Flusher,
        records: RecordWriter,
        journals: BrokerJournals,
        journal_reader: JournalReader,
        reader: LogReader,
        checkpointer: Checkpointer,
        pool: SlabPool,
        budget: MemoryBudget,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self.flusher = flusher
        self.records = records
        self._journals = journals
        self.reader = reader
        self.pool = pool
        self.budget = budget
        self._lost_listeners: list[Callable[[str, int], None]] = []
        self._led_listeners: list[Callable[[Partition], None]] = []
        self._missing_listeners: list[Callable[[Partition, SegmentReference], None]] = []
        self.claims = ClaimsInFlight()
        self._checkpointer = checkpointer
        self.metrics = metrics
        self._metadata = metadata
        self._factory = PartitionFactory(view, settings, metrics.background_failures)
        self._followed = FollowedPartitions(
            metadata,
            self._factory.followed,
            self._factory.is_current,
            journal_reader,
            metrics=metrics.journal,
        )
        self.stored = StoredRecords(self._followed)
        self._led = LedPartitions(self.claims, self._followed, flusher, metrics, self._lost)
        self._openings: SingleFlight[Partition, None] = SingleFlight()
        self._closings = TaskOwner()
        # Of deleted topics, with flushes that may be in flight.
        self._unsettled: set[Partition] = set()
        view.subscribe(self._topic_changed)
        journals.subscribe_ended(self._journal_ended)

    def subscribe_lost(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` with each partition that this broker stops leading without having resigned."""
        self._lost_listeners.append(listener)

    def subscribe_led(self, listener: Callable[[Partition], None]) -> None:
        """Call `listener` with each partition that this broker begins to lead."""
        self._led_listeners.append(listener)

    def subscribe_missing(self, listener: Callable[[Partition, SegmentReference], None]) -> None:
        """Call `listener` with each segment that `report_missing` names."""
        self._missing_listeners.append(listener)

    def report_missing(self, partition: Partition, reference: SegmentReference) -> None:
        """Report a segment whose object a reader did not find although the partition's record names it."""
        for listener in self._missing_listeners:
            listener(partition, reference)

    # --- looking up

    @property
    def readable_changes(self) -> int:
        """Grows whenever the answers of `readable` may change."""
        return self._led.changes + self._followed.changes

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, None if this broker does not lead it."""
        return self._led.get(topic, index)

    def readable(self, topic: str, index: int) -> Partition | None:
        """The partition if it can be read here at once: it is led or followed."""
        return self.partition(topic, index) or self._followed.get(topic, index)

    async def follow(self, topic: str, index: int) -> Partition | None:
        """The partition, to read what its leader publishes; None if there is none.

        Raises `StoreError`, `CorruptDataError`.
        """
        return self.partition(topic, index) or await self._followed.follow(topic, index)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that this broker leads."""
        return iter(self._led)

    @property
    def partition_count(self) -> int:
        """The number of partitions that this broker leads."""
        return len(self._led)

    @property
    def followed_count(self) -> int:
        """The number of partitions that this broker follows."""
        return len(self._followed)

    def register_gauges(self, metrics: Metrics) -> None:
        """Register the gauges of the partitions that are led and followed."""
        self._led.register_gauges(metrics)
        metrics.gauge(metric_families.PARTITIONS_FOLLOWED, lambda: self.followed_count)

    def stored_by_topic(self) -> dict[str, StoredTopic]:
        """The stored part of each topic, in the partitions that this broker leads, for any thread."""
        return self._led.stored_by_topic()

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
        if partition.leadership.state is State.OPENING and not partition.record.checkpoint_key:
            return partition.open(EMPTY_CHECKPOINT)
        return partition.log

    async def load(self, partition: Partition) -> None:
        """Load the partition's references, and open the log of one that is led.

        Raises `CorruptDataError`, `StoreError`.
        """
        # Again, if the watch has shown something meanwhile that makes the references incomplete.
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
                if not await self.stored.follow_newer(partition, key):
                    raise
                continue
            if partition.record.checkpoint_key != key:
                continue
            if partition.is_led:
                partition.open(checkpoint)
            else:
                partition.load(checkpoint)
            return

    async def is_leader_still(self, partition: Partition) -> bool:
        """True if no other broker led when the metadata store was read. Raises `StoreError`."""
        return (
            await is_leader_still(self._metadata, partition)
            and self.partition(partition.id.topic, partition.id.index) is partition
        )

    # --- appending

    def append(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        waiter: AppendWaiter,
    ) -> FlushTimes | None:
        """Append a validated batch to a partition whose log is open, and begin its flush if it is due.

        `waiter` is notified of the outcome, at once for a refusal or for the retry of a published batch. Returns the
        times of the flush that will publish the batch; None if nothing was appended.
        """
        log = partition.log
        assert log is not None
        grown = log.append(batch, header, partition.rules, now_ms, self.pool, waiter)
        if not grown:
            return None
        times = log.newest.times
        self.budget.charge(grown)
        self.flusher.appended(partition)
        counters = self.metrics.topic(partition.id.topic)
        counters.bytes_in += len(batch)
        counters.records_in += header.record_count
        counters.batches_in += 1
        return times

    def append_marker(
        self, partition: Partition, end: EndOfTransaction, now_ms: int, waiter: AppendWaiter
    ) -> None:
        """Append the marker of an open transaction to a partition whose log is open; see `append`."""
        log = partition.log
        assert log is not None
        self.budget.charge(log.append_marker(end, now_ms, self.pool, waiter))
        self.flusher.appended(partition)

    # --- leading

    def lead(self, claimed: Claimed) -> None:
        """Serve a partition that was claimed."""
        topic, index = claimed.topic, claimed.index
        leadership = self.claims.leadership((topic, index))
        position = claimed.record.journal
        assert position is not None, "a claim names its journal"
        journal = self._journals.find(position.journal_id)
        partition = self._factory.led(
            topic, index, claimed.record, claimed.revision, leadership, position.topic_id, journal
        )
        if partition is not None:  # Else its topic is being deleted, and with it the claim.
            self._led.apply(partition, Event.ELECTED)
            for listener in self._led_listeners:
                listener(partition)

    async def resign(self, partition: Partition) -> bool:
        """Lead the partition no longer: accept nothing more, and publish what was accepted.

        What cannot be published in time is refused with NOT_LEADER_OR_FOLLOWER. True if the partition's record has
        all of it, so that another broker can lead; False if some of it may be in the journal alone.
        """
        is_released = False
        self._led.apply(partition, Event.RESIGN)
        if await self.flusher.drained(partition, _RESIGN_SEC):
            is_released = await self._release(partition)
        else:
            self._led.apply(partition, Event.DRAIN_TIMED_OUT)
            await self.flusher.settle(partition, 0)
        self._led.apply(partition, Event.DRAINED)
        return is_released

    async def _release(self, partition: Partition) -> bool:
        """Store what is published, so that the next leader need not look into this broker's journal."""
        try:
            async with asyncio.timeout(_RESIGN_SEC):
                await self.records.release(partition)
            return True
        except FencedError as fenced:
            logger.info("another broker leads already", extra={"why": str(fenced)})
            return True
        except (TimeoutError, StoreError, CorruptDataError) as problem:
            logger.warning(
                "could not release a partition's record",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            return False

    def _journal_ended(self, journal: BrokerJournal, is_certain: bool) -> None:
        """Nothing more is stored of the partitions that are led with this journal."""
        self.flusher.journal_ended(journal)
        event = Event.FENCED if is_certain else Event.FLUSH_FAILED
        for partition in (*self.partitions(), *self._unsettled):
            if partition.journal is journal:
                self._led.apply(partition, event)

    def apply(self, partition: Partition, event: Event) -> None:
        """Let the event happen to a partition that is led here."""
        self._led.apply(partition, event)

    def _lost(self, topic: str, index: int) -> None:
        for listener in self._lost_listeners:
            listener(topic, index)

    # --- topics change and go

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if after is None or after.state is not TopicState.ACTIVE:
            gone = before or after
            if gone is not None:
                self.claims.delete_topic(gone.name)
            if gone is not None and self._factory.has_made(gone.name):
                # At once: the next event may be that a topic of this name is there again.
                led = self._drop_topic(gone.name)
                self._closings.spawn(self._end(gone.name, led), f"close {gone.name}")
        elif before is not None and before.configs != after.configs:
            self._factory.configure(after, self._of_topic(after.name))

    def _of_topic(self, name: str) -> list[Partition]:
        """The topic's partitions that are led or followed here."""
        followed = (partition for partition in self._followed if partition.id.topic == name)
        return [*self._led.of_topic(name), *followed]

    async def close_topic(self, name: str) -> None:
        """Stop serving the topic, end its flushes, and remove it. No error if it is not served."""
        await self._end(name, self._drop_topic(name))

    def _drop_topic(self, name: str) -> list[Partition]:
        """Stop serving the topic; returns the partitions that were led, whose flushes are still to be ended."""
        self._factory.forget(name)
        for partition in self._of_topic(name):
            self.reader.forget(partition)
        led = self._led.delete_topic(name)
        self._unsettled.update(led)
        self._followed.drop_topic(name)
        return led

    async def _end(self, name: str, led: Sequence[Partition]) -> None:
        for partition in led:
            await self.flusher.settle(partition, _SETTLE_SEC)
            self._unsettled.discard(partition)
            self.reader.forget(partition)
            self._led.apply(partition, Event.SETTLED)
        self.metrics.forget_topic(name)

    # --- stopping

    async def drain(self) -> None:
        """Publish everything that is buffered; returns when all of it is."""
        await self.flusher.drain()

    def unfinished(self) -> dict[str, object]:
        """The reasons why `drain` does not return, for the log."""
        return self.flusher.unfinished()

    def end_waiting(self) -> None:
        """Notify all listeners that no more records will come."""
        for partition in (*self.partitions(), *self._followed):
            partition.notify_closed()

    async def close(self) -> None:
        """Cancel everything in progress, and close the parts."""
        await self._closings.close()
        await self.flusher.close()
        for partition in self._unsettled:
            self._led.apply(partition, Event.SETTLED)
        await self.records.close()
        await self._followed.close()
        await self._openings.close()
        await self._checkpointer.close()
        await self.reader.close()
