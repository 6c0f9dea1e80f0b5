"""One compaction of one partition: builds the map, then rewrites the segments group by group, oldest first.

Each group is published by itself, by the swap that merging has: a checkpoint with the new list, and one write of the
partition's record. A crash between two groups leaves a log that is compacted up to there, and an orphan at most. The
object of a group has a key of its own for every attempt; `garbage.py` says how its orphans are known.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.formats import object_keys
from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.object_keys import Compaction
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import SegmentHeader, parse_header
from kafscale.log.compaction.checked_source import COSTLY_BYTES, checked_batches
from kafscale.log.compaction.cleaned_transactions import AbortedRange
from kafscale.log.compaction.cleaner import CleaningRules, CleaningTotals
from kafscale.log.compaction.cleaning_work import Cleaning, CleaningWork
from kafscale.log.compaction.compacted_segment import CompactedSegment
from kafscale.log.compaction.compaction_plan import (
    CompactionState,
    compaction_groups,
    is_worth_writing,
)
from kafscale.log.life.merge_planner import COMPACTED_BYTES
from kafscale.log.life.pace import Pace
from kafscale.log.life.segment_merge import DamagedSourceError
from kafscale.log.life.segment_swap import SegmentSwap
from kafscale.log.life.source_reads import NamedSource, SourceReads
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError, open_log
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer

logger = logging.getLogger(__name__)

# The limit of one decompressed batch; a batch that holds more is left as it is.
OPENED_LIMIT_BYTES: Final = 256 * 1024 * 1024

# More are felt on the event loop while they are sorted.
_MANY_TRANSACTIONS: Final = 1000


class MapTooSmallError(Exception):
    """Not even one dirty batch fits into the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result for one group: its sources, the segment in their place, and what was counted."""

    sources: tuple[SegmentReference, ...]
    reference: SegmentReference
    totals: CleaningTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTools:
    """The parts that compactions share.

    `memory_bytes`: of the map. `new_token`: letters and digits, new for every call.
    """

    objects: ObjectStore
    reads: SourceReads
    work: CleaningWork
    swap: SegmentSwap
    namespace: str
    pace: Pace
    memory_bytes: int
    now_ms: Callable[[], int]
    index_version: Callable[[], int]
    new_token: Callable[[], str]
    group_bytes: int = COMPACTED_BYTES


class PartitionCompaction:
    """`run` yields each group that was published; what it replaced is the caller's to remove.

    `making`: the key of the object that is not published yet, which no collector may take for an orphan.
    """

    def __init__(
        self, tools: CompactionTools, partition: Partition, state: CompactionState, max_span_ms: int | None
    ) -> None:
        self._tools = tools
        self._partition = partition
        self._state = state
        self._max_span_ms = max_span_ms
        self.making = ""

    async def run(self) -> AsyncGenerator[Compacted, None]:
        """Compact.

        Raises `CleaningFailedError`, `DamagedSourceError`, `MissingSourceError`, `MapTooSmallError`, `FencedError`,
        `StoreError`, and `ObjectExistsError` after a PUT whose first answer was lost: the object is left alone.
        """
        state, tools = self._state, self._tools
        log = open_log(self._partition)
        rules = CleaningRules(
            now_ms=tools.now_ms(),
            delete_retention_ms=self._partition.config.delete_retention_ms,
            first_dirty_offset=state.first_dirty_offset,
            last_batches={
                producer.producer_id: producer.batches[-1].base_offset
                for producer in log.producers.published()
                if producer.batches
            },
            opened_limit_bytes=OPENED_LIMIT_BYTES,
            aborted=await _ranges(self._partition.aborted),
        )
        most_keys = sum(reference.record_count for reference in state.dirty)
        async with tools.work.begin(rules, tools.memory_bytes, most_keys) as cleaning:
            mapped, map_end_offset = await self._map(cleaning)
            groups = compaction_groups((*state.clean, *mapped), self._max_span_ms, tools.group_bytes)
            for sources in groups:
                made = await self._rewrite(cleaning, sources, map_end_offset)
                if made is not None:
                    yield made

    async def _map(self, cleaning: Cleaning) -> tuple[Sequence[SegmentReference], int]:
        """Take the keys of the dirty segments; those that are in the map, and where it ends.

        One that is only partly in the map waits for the next compaction, unless it is the first.
        """
        dirty = self._state.dirty
        map_end_offset = self._state.first_dirty_offset
        for place, reference in enumerate(dirty):
            async with aclosing(self._batches(reference)) as batches:
                async for views in batches:
                    is_full, map_end_offset = await cleaning.map(views)
                    if is_full:
                        if map_end_offset <= self._state.first_dirty_offset:
                            raise MapTooSmallError(
                                f"the map for {self._partition.id} has no room for the records of one batch at "
                                f"offset {map_end_offset}: raise KAFSCALE_COMPACTION_MEMORY"
                            )
                        return dirty[: max(1, place)], map_end_offset
        return dirty, map_end_offset

    async def _rewrite(
        self, cleaning: Cleaning, sources: tuple[SegmentReference, ...], map_end_offset: int
    ) -> Compacted | None:
        """Write and publish what is left of a group; None if it may stay as it is."""
        tools, partition = self._tools, self._partition
        made = CompactedSegment(sources, await self._newest_header(sources[-1]))
        kept: list[bytes] = []
        kept_bytes = 0
        totals = CleaningTotals()
        async with aclosing(self._cleaned(cleaning, sources, totals)) as parts:
            async for part in parts:
                if len(part) > COSTLY_BYTES:
                    await asyncio.to_thread(made.add, part)
                else:
                    made.add(part)
                kept_bytes += len(part)
                if kept_bytes <= tools.group_bytes:
                    kept.append(part)
                else:
                    kept.clear()
        dirty_from = self._state.first_dirty_offset
        if not is_worth_writing(sources, dirty_from, has_changes=totals.has_changes):
            return None
        compaction = Compaction(map_end_offset, partition.record.leader_epoch, tools.new_token())
        key = object_keys.compacted_segment_key(
            tools.namespace,
            partition.id.topic,
            partition.id.index,
            sources[0].base_offset,
            sources[-1].last_offset,
            compaction,
        )
        self.making = key
        try:
            # A large one is made a second time, by the same rules and the same map, rather than kept in memory.
            is_kept = kept_bytes <= tools.group_bytes
            again = _of(kept) if is_kept else self._cleaned_again(cleaning, sources)
            async with aclosing(again), aclosing(_object(made, again)) as chunks:
                await tools.objects.put_if_absent_streamed(key, chunks, made.size_bytes)
            kept.clear()
            await tools.objects.put(object_keys.index_key_of(key), [made.index(tools.index_version())])
            reference = made.reference(key)
            if not await tools.swap.publish(partition, reference, sources, totals.gone_transactions):
                raise FencedError(f"the segments of {partition.id} have changed while they were compacted")
        finally:
            self.making = ""
        return Compacted(sources=sources, reference=reference, totals=totals)

    async def _cleaned(
        self, cleaning: Cleaning, sources: Sequence[SegmentReference], totals: CleaningTotals
    ) -> AsyncGenerator[bytes, None]:
        """The rest of the sources' batches; `totals` is complete at the end."""
        for source in sources:
            async with aclosing(self._batches(source)) as batches:
                async for views in batches:
                    part = await cleaning.clean(views)
                    if part:
                        yield part
        rest, counted = await cleaning.end_object()
        totals.add(counted)
        if rest:
            yield rest

    async def _cleaned_again(
        self, cleaning: Cleaning, sources: Sequence[SegmentReference]
    ) -> AsyncGenerator[bytes, None]:
        await cleaning.again()
        async with aclosing(self._cleaned(cleaning, sources, CleaningTotals())) as parts:
            async for part in parts:
                yield part

    def _batches(self, reference: SegmentReference) -> AsyncGenerator[list[memoryview], None]:
        return checked_batches(self._tools.reads, self._named(reference), self._tools.pace)

    async def _newest_header(self, reference: SegmentReference) -> SegmentHeader:
        named = self._named(reference)
        try:
            return parse_header(named.key, await self._tools.reads.head(named))
        except CorruptDataError as problem:
            raise DamagedSourceError(reference, problem) from problem

    def _named(self, reference: SegmentReference) -> NamedSource:
        topic, index = self._partition.id.topic, self._partition.id.index
        return NamedSource(
            reference, object_keys.key_of_reference(self._tools.namespace, topic, index, reference)
        )


async def _ranges(aborted: AbortedTransactions | None) -> list[AbortedRange]:
    if aborted is None:
        return []
    if len(aborted) <= _MANY_TRANSACTIONS:
        return _in_order(aborted)
    return await asyncio.to_thread(_in_order, aborted.copy())


def _in_order(aborted: AbortedTransactions) -> list[AbortedRange]:
    return [
        AbortedRange(one.producer_id, one.first_offset, one.last_offset)
        for one in sorted(aborted, key=lambda one: one.first_offset)
    ]


async def _of(parts: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


async def _object(made: CompactedSegment, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[Buffer, None]:
    yield made.header
    async for part in parts:
        yield part
    yield made.footer
