"""Compacts the partitions that this broker leads, in the background: one after the other, the dirtiest first."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.object_keys import segment_key_of
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.compaction.cleaner import CleaningTotals
from kafscale.log.compaction.cleaning_work import CleaningFailedError
from kafscale.log.compaction.compaction_candidates import CompactionCandidates
from kafscale.log.compaction.compaction_plan import CompactionState
from kafscale.log.compaction.partition_compaction import (
    CompactionTools,
    MapTooSmallError,
    PartitionCompaction,
)
from kafscale.log.life.merger import Merger
from kafscale.log.life.removals import Removals
from kafscale.log.life.retention import span_limit_ms
from kafscale.log.life.segment_merge import DamagedSourceError
from kafscale.log.life.source_reads import MissingSourceError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.ops import metric_families
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import CompactionOutcome, Metrics

logger = logging.getLogger(__name__)

_LOOKS_PER_TURN: Final = 200


class Compactor:
    """`tools` and `merger` are those of this broker: a partition is compacted or merged, never both at a time."""

    def __init__(
        self,
        tools: CompactionTools,
        logs: LogManager,
        checkpointer: Checkpointer,
        removals: Removals,
        merger: Merger,
        metrics: Metrics,
        *,
        interval_ms: int,
        is_off: bool,
        steady_ms: Callable[[], int],
    ) -> None:
        self.tools = tools
        self._logs = logs
        self._removals = removals
        self._merger = merger
        self._metrics = metrics
        self._interval_sec = interval_ms / 1000
        self._is_off = is_off
        self._steady_ms = steady_ms
        self._candidates = CompactionCandidates(checkpointer, tools.now_ms)
        self._failures = ItemFailures(BackgroundWork.COMPACTION, metrics.background_failures)
        self._current: PartitionCompaction | None = None
        metrics.gauge(metric_families.COMPACTION_DIRTY_RATIO, self._candidates.largest_dirty_ratio)
        metrics.gauge(metric_families.COMPACTION_OLDEST_DIRTY, self._candidates.oldest_dirty_sec)

    def is_making(self, key: str) -> bool:
        """True for a segment, or its index, that is about to be published."""
        current = self._current
        if current is None or not current.making:
            return False
        return current.making == (segment_key_of(key) if key.endswith(".index") else key)

    async def run(self) -> None:
        """Compact until cancelled."""
        while True:
            await asyncio.sleep(self._interval_sec)
            if not self._is_off:
                await self.look()

    async def look(self) -> int:
        """Compact every partition that is due; returns how many were."""
        led = tuple(self._logs.partitions())
        self._candidates.retain(set(led))
        due: list[tuple[float, int, Partition]] = []
        for number, partition in enumerate(led):
            if number % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._candidates.is_worth_a_look(partition):
                state = await self._state(partition)
                if state is not None and state.is_due:
                    due.append((-state.dirty_ratio, number, partition))
        count = 0
        for _, _, partition in sorted(due, key=lambda one: one[:2]):
            if partition.is_led and await self.compact(partition):
                count += 1
        return count

    async def compact(self, partition: Partition) -> bool:
        """Compact the partition if it is due; returns whether it was, and is now. What goes wrong is logged."""
        if not self._merger.hold(partition):
            return False  # It is being merged: the next look has it again.
        try:
            # Once more: what lay between may have been long.
            state = await self._state(partition)
            if state is None or not state.is_due:
                return False
            return await self._compact(partition, state)
        finally:
            self._merger.let_go(partition)

    async def _state(self, partition: Partition) -> CompactionState | None:
        try:
            return await self._candidates.look(partition)
        except (StoreError, CorruptDataError) as problem:
            self._note_failure(partition, problem)
        except Exception as problem:  # noqa: BLE001 - reported
            self._candidates.failed(partition)
            self._failures.report(partition.id, problem)
        return None

    async def _compact(self, partition: Partition, state: CompactionState) -> bool:
        began_ms = self._steady_ms()
        totals = CleaningTotals()
        written_bytes = before_bytes = 0
        try:
            await self._logs.load(partition)
            compaction = PartitionCompaction(self.tools, partition, state, span_limit_ms(partition.config))
            self._current = compaction
            async with aclosing(compaction.run()) as groups:
                async for group in groups:
                    self._logs.reader.forget_segments(partition, group.sources)
                    self._removals.remove_later(partition, group.sources)
                    totals.add(group.totals)
                    group_bytes = sum(source.size_bytes for source in group.sources)
                    before_bytes += group_bytes
                    written_bytes += group.reference.size_bytes
                    self._metrics.compactions.rewrote(
                        group.totals.removed_records, group_bytes, group.reference.size_bytes
                    )
        except FencedError as fenced:
            # Another broker leads it, or retention was faster.
            logger.info(
                "abandoned a compaction", extra={"partition": str(partition.id), "problem": str(fenced)}
            )
            self._metrics.compactions.count(CompactionOutcome.GIVEN_UP)
            self._candidates.failed(partition)
            return False
        except MissingSourceError as problem:
            await self._missing(partition, problem)
            return False
        except (
            StoreError,
            CorruptDataError,
            DamagedSourceError,
            CleaningFailedError,
            MapTooSmallError,
        ) as problem:
            self._note_failure(partition, problem)
            return False
        except Exception as problem:  # noqa: BLE001 - reported
            self._metrics.compactions.count(CompactionOutcome.FAILED)
            self._candidates.failed(partition)
            self._failures.report(partition.id, problem)
            return False
        finally:
            self._current = None
            self._metrics.compactions.seconds += (self._steady_ms() - began_ms) / 1000
        self._metrics.compactions.count(CompactionOutcome.DONE)
        self._candidates.compacted(partition)
        read_bytes = sum(source.size_bytes for source in (*state.clean, *state.dirty))
        logger.info(
            "compacted a partition",
            extra={
                "partition": str(partition.id),
                "read_bytes": read_bytes,
                "rewritten_bytes": before_bytes,
                "written_bytes": written_bytes,
                "removed_records": totals.removed_records,
                "removed_tombstones": totals.removed_tombstones,
                "unreadable_batches": totals.unreadable_batches,
                "seconds": round((self._steady_ms() - began_ms) / 1000, 3),
            },
        )
        return True

    async def _missing(self, partition: Partition, problem: MissingSourceError) -> None:
        """Handle a segment without an object: it has expired or was merged elsewhere, or is lost."""
        references = partition.references
        named = None if references is None else next(references.from_offset(problem.source.base_offset), None)
        if named == problem.source and await self._is_leader_still(partition):
            self._logs.report_missing(partition, problem.source)
        self._note_failure(partition, problem)

    async def _is_leader_still(self, partition: Partition) -> bool:
        try:
            return await self._logs.is_leader_still(partition)
        except StoreError:
            return False

    def _note_failure(self, partition: Partition, problem: Exception) -> None:
        self._metrics.compactions.count(CompactionOutcome.FAILED)
        self._candidates.failed(partition)
        logger.warning(
            "could not compact a partition, trying again later",
            extra={"partition": str(partition.id), "problem": str(problem)},
        )
