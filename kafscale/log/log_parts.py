"""Composes the parts of a broker that lead and follow partitions, for the composition root.

Nothing of it runs yet: `work` gives the background loops, and `begin_journal` comes first, once the broker is
registered.
"""

import math
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from kafscale.clocks import SYSTEM, Clocks
from kafscale.cluster.view import ClusterView
from kafscale.formats.features import SEGMENT_FORMAT
from kafscale.formats.index import index_version_at
from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.compaction.cleaning_work import CleaningWork
from kafscale.log.compaction.compactor import Compactor
from kafscale.log.compaction.partition_compaction import CompactionTools
from kafscale.log.journal.broker_journal import BrokerJournal, BrokerJournals
from kafscale.log.journal.collector import LONGEST_GRACE_SEC, LONGEST_INTERVAL_SEC, JournalCollector
from kafscale.log.journal.journal_gauges import register_journal_gauges
from kafscale.log.journal.progress import JournalProgress
from kafscale.log.journal.replays import JournalReplays
from kafscale.log.journal.writer import JournalWriter
from kafscale.log.life.pace import Pace
from kafscale.log.life.seal_debt import SealDebt
from kafscale.log.life.segment_life import SegmentLife
from kafscale.log.life.segment_swap import SegmentSwap
from kafscale.log.life.source_reads import SourceReads
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.partition_service import PartitionService
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.transactions.markers import Markers
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.flush_pacer import FlushPolicy
from kafscale.log.writing.flusher import Flusher
from kafscale.log.writing.record_writer import RecordWriter
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.store import MetadataStore
from kafscale.objects.health import ObjectStoreHealth
from kafscale.objects.hedging import Hedge
from kafscale.objects.object_store import ObjectStore
from kafscale.objects.request_meter import SharedCost, unshared
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings

_FLUSHES_PER_SEC = 4
_COMPACTION_READS_AT_ONCE = 4


def flush_policy(settings: Settings) -> FlushPolicy:
    """When a broker with these settings flushes."""
    per_sec: float | None = settings.flushes_per_sec
    if per_sec is None:
        # On a bucket each is a paid request.
        per_sec = math.inf if settings.s3_bucket is None else _FLUSHES_PER_SEC
    return FlushPolicy(
        interval_ms=settings.flush_interval_ms,
        entry_bytes=settings.flush_bytes,
        flushes_per_sec=per_sec,
        in_flight=settings.flushes_in_flight,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurroundings:
    """The parts' connections to the broker around them.

    `lease`: the lease that claims are bound to. `end_lease` is called when the journal of the present registration
    takes no more entries. `unrenewed_ms`: for how long the lease was not renewed.
    `new_random` and `new_token` give what no other process draws.
    """

    settings: Settings
    metrics: Metrics
    metadata: MetadataStore
    objects: ObjectStore
    health: ObjectStoreHealth
    view: ClusterView
    pool: SlabPool
    budget: MemoryBudget
    lease: Callable[[], int]
    end_lease: Callable[[], None]
    unrenewed_ms: Callable[[], int]
    new_random: Callable[[], random.Random]
    new_token: Callable[[], str]
    cleaning: CleaningWork
    hedge: Hedge | None = None
    shared_cost: SharedCost = unshared
    clocks: Clocks = SYSTEM


class LogParts:
    """The parts, put together. `reader`: see `log_reader`."""

    def __init__(self, around: LogSurroundings, reader: LogReader) -> None:
        self._around = around
        self.reader = reader
        settings, metrics = around.settings, around.metrics
        namespace, failures = settings.s3_namespace, metrics.background_failures
        self.checkpointer = Checkpointer(
            around.objects, around.metadata, namespace, around.clocks.now_ms, around.new_token, failures
        )
        self.gap_guard = ProducerGapGuard()
        self.seal_debt: SealDebt[Partition] = SealDebt()
        self._retries = StoreRetries(around.new_random())
        self._conditional_put = ConditionalPut(around.objects, self._retries, around.hedge)
        self.journals = BrokerJournals(self._make_journal)
        self.logs = self._make_logs()
        self.markers = Markers(
            around.metadata, self.logs, around.clocks.now_ms, ItemFailures(BackgroundWork.MARKERS, failures)
        )
        self.journals.subscribe_ended(self._journal_ended)
        replays = JournalReplays(
            around.objects,
            around.metadata,
            around.view,
            namespace,
            settings.broker_id,
            self.journals,
            self._retries,
            around.clocks.now_ms,
            ItemFailures(BackgroundWork.CLAIMS, failures),
            metrics.journal,
        )
        self.partitions = PartitionService(
            around.metadata, around.view, around.lease, self.logs, settings.broker_id, replays
        )
        self.segment_life = SegmentLife(
            around.objects,
            around.health,
            self.logs,
            self.checkpointer,
            settings,
            metrics,
            cluster_id=around.view.cluster_id,
            now_ms=around.clocks.now_ms,
            steady_ms=around.clocks.steady_ms,
            index_version=self.index_version,
            seal_debt_bytes=lambda: self.seal_debt.size_bytes,
            is_making=lambda key: self.compactor.is_making(key),
            shared_cost=around.shared_cost,
        )
        self.compactor = self._make_compactor()
        self._collector = JournalCollector(
            around.objects,
            around.metadata,
            namespace,
            self.journals,
            self.logs.partitions,
            replays,
            self._is_first_broker,
            self._retries,
            around.clocks.now_ms,
            ItemFailures(BackgroundWork.JOURNALS, failures),
            grace_sec=min(settings.garbage_grace_sec, LONGEST_GRACE_SEC),
            interval_sec=min(settings.garbage_check_interval_sec, LONGEST_INTERVAL_SEC),
            on_collected=self._on_collected,
        )

        self._on_collected(0)
        register_journal_gauges(
            metrics,
            self.journals,
            self.seal_debt,
            settings,
            flush_policy(settings),
            lambda: around.clocks.steady_ms() / 1000,
        )

    async def begin_journal(self, journal_id: str) -> None:
        """Begin the journal of a registration; before it, nothing is claimed."""
        await self.journals.begin(journal_id)

    def work(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The background loops, by name; they run as long as the broker does."""
        return {
            **self.segment_life.work(),
            "markers": self.markers.run(),
            "compactor": self.compactor.run(),
            "journal collector": self._collector.run(),
        }

    def index_version(self) -> int:
        """The version in which indexes are written."""
        return index_version_at(self._around.view.feature_level(SEGMENT_FORMAT))

    def _make_compactor(self) -> Compactor:
        around, settings = self._around, self._around.settings
        tools = CompactionTools(
            objects=around.objects,
            reads=SourceReads(around.objects, _COMPACTION_READS_AT_ONCE),
            work=around.cleaning,
            swap=SegmentSwap(self.logs, self.checkpointer, around.clocks.steady_ms),
            namespace=settings.s3_namespace,
            pace=Pace(max(1, settings.compaction_bytes_per_sec)),
            memory_bytes=settings.compaction_memory_bytes,
            now_ms=around.clocks.now_ms,
            index_version=self.index_version,
            new_token=around.new_token,
        )
        return Compactor(
            tools,
            self.logs,
            self.checkpointer,
            self.segment_life.removals,
            self.segment_life.merger,
            around.metrics,
            interval_ms=settings.merge_check_interval_ms,
            is_off=not settings.compaction_bytes_per_sec,
            steady_ms=around.clocks.steady_ms,
        )

    def _make_logs(self) -> LogManager:
        around = self._around
        flusher = Flusher(
            flush_policy(around.settings),
            around.budget,
            around.clocks,
            around.metrics,
            self.gap_guard,
            self._make_room,
            self._on_published,
        )
        return LogManager(
            around.view,
            around.metadata,
            flusher,
            RecordWriter(around.metadata, around.new_random(), self._on_stored),
            self.journals,
            (around.objects, around.settings.s3_namespace, self._retries),
            self.reader,
            self.checkpointer,
            around.pool,
            around.budget,
            around.settings,
            around.metrics,
        )

    def _make_journal(self, journal_id: str, ended: Callable[[bool], None]) -> BrokerJournal:
        around = self._around
        writer = JournalWriter(
            around.objects,
            self._conditional_put,
            self._retries,
            around.settings.s3_namespace,
            journal_id,
            around.settings.broker_id,
            now_ms=around.clocks.now_ms,
            ended=ended,
            unrenewed_ms=around.unrenewed_ms,
            steady_ms=around.clocks.steady_ms,
            shared_cost=around.shared_cost,
            metrics=around.metrics.journal,
        )
        progress = JournalProgress(
            around.metadata,
            journal_id,
            around.settings.broker_id,
            around.new_random(),
            lambda place: ended(False) if place is None else writer.told_of_end(place),
        )
        return BrokerJournal(journal_id, writer, progress)

    def _journal_ended(self, journal: BrokerJournal, is_certain: bool) -> None:
        if journal is self.journals.current:
            self._around.end_lease()

    def _is_first_broker(self) -> bool:
        running = self._around.view.brokers_to_read_from()
        return bool(running) and running[0].broker_id == self._around.settings.broker_id

    def _on_collected(self, deleted: int) -> None:
        counts = self._around.metrics.journal
        counts.collected += deleted
        counts.collected_at_sec = self._around.clocks.steady_ms() / 1000

    def _on_stored(self, partition: Partition, state: PartitionRecord) -> None:
        self.seal_debt.stored(partition, state.segments, self._around.clocks.steady_ms() / 1000)

    def _on_published(self, partition: Partition, sealed: SealedSegment) -> None:
        self.seal_debt.added(partition, sealed.reference, self._around.clocks.steady_ms() / 1000)
        self.reader.add_published(partition, sealed)
        self.checkpointer.consider(partition)
        self.segment_life.sealer.published(partition, sealed)

    async def _make_room(self, partition: Partition, log: PartitionLog) -> None:
        await self.segment_life.sealer.make_room(partition, log)
        await self.checkpointer.make_room(partition, log)

    async def close(self) -> None:
        """Cancel what is in progress. `partitions` is closed before."""
        await self.segment_life.close()
        await self.markers.close()
        await self.logs.close()
        await self.journals.close()
        await self._conditional_put.close()
