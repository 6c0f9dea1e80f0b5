"""Brings the records of partitions up to date, and seals what has gathered of them in the journal.

The loop that consolidates (docs/format/journal.md): now and then the record of each partition that was written to is
stored, so that a new leader has little to read of the journal. Where enough slices have gathered, they become a
segment first, and the same write of the record names it in their place; the slices of the others are combined in
objects that many partitions share (gatherer.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.partition_state import unsealed
from kafscale.log.leadership.events import Event
from kafscale.log.life.gatherer import Gather, Gatherer
from kafscale.log.life.seal_planner import SealLimits, SealPlan, SealStep, plan_seal, sources_of_segment
from kafscale.log.life.seal_swap import swap_slices
from kafscale.log.life.segment_merge import DamagedSourceError, KeyTakenError
from kafscale.log.life.slice_segments import PacedSegments, SliceSegments, is_large
from kafscale.log.life.source_reads import MissingSourceError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import MOST_RECORD_SEGMENTS, PartitionLog
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.record_writer import FencedError, open_log
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.bounded import map_bounded
from kafscale.tasks.item_queue import ItemQueue

logger = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 16
FULL_BYTES = 192 * 1024 * 1024
MANY_REFERENCES = MOST_RECORD_SEGMENTS // 4
"""With so many in its record a partition is looked at soon."""
"""Of one partition: more than half of what merging makes, so that the segment is not written again."""
_LOOKS_PER_TURN = 200
_FIRST_RETRY_SEC = 0.25
_LAST_RETRY_SEC = 5.0


class Sealer:
    """Of the partitions that this broker leads.

    It looks at them at an interval, and earlier when `memory_bytes` were published since: as long as slices are in
    the broker's memory, they need not be read. For the same reason a partition that has `full_bytes` is sealed as
    soon as it has them. Partitions with much to seal come one after the other, at a pace, beside the looks.
    """

    def __init__(
        self,
        logs: LogManager,
        segments: SliceSegments,
        paced: PacedSegments,
        gatherer: Callable[[Callable[[Partition, Exception], None]], Gatherer],
        limits: SealLimits,
        interval_ms: int,
        memory_bytes: int,
        now_ms: Callable[[], int],
        index_version: Callable[[], int],
        failures: ItemFailures | None = None,
        full_bytes: int = FULL_BYTES,
    ) -> None:
        """`paced`: for partitions with much to seal. `now_ms`: of a clock that does not go back.

        `gatherer` makes one, with what it reports failures to.
        """
        self._logs = logs
        self._segments = segments
        self._paced = paced
        self._gatherer = gatherer(self._failed)
        self._limits = limits
        self._interval_sec = interval_ms / 1000
        self._memory_bytes = memory_bytes
        self._now_ms = now_ms
        self._index_version = index_version
        self._failures = failures or ItemFailures(BackgroundWork.SEALING)
        # Partitions with more than their record says, or with slices that are not sealed, and since when.
        self._behind: dict[Partition, int] = {}
        self._published_bytes = 0
        self._full_bytes = full_bytes
        # Published since the last look at the partition, and the partitions of which that is a segment's worth.
        self._sizes: dict[Partition, int] = {}
        self._full: dict[Partition, None] = {}
        self._there_is_much = asyncio.Event()
        # Partitions with much to seal: these are sealed one after the other, beside the looks, which pass them over.
        self._large: set[Partition] = set()
        self._large_ones: ItemQueue[Partition] = ItemQueue("seal much", self._settle_large, self._failed)

    # --- what there is to do

    def published(self, partition: Partition, sealed: SealedSegment) -> None:
        """More of the partition is published than its record says."""
        self._behind.setdefault(partition, self._now_ms())
        size_bytes = sealed.buffer.size_bytes
        self._published_bytes += size_bytes
        self._sizes[partition] = size_bytes = size_bytes + self._sizes.get(partition, 0)
        if size_bytes >= self._full_bytes:
            self._full[partition] = None
            self._there_is_much.set()
        elif self._published_bytes >= self._memory_bytes:
            self._there_is_much.set()
        log = partition.log
        if log is not None and len(log.record.segments) == MANY_REFERENCES:
            self._there_is_much.set()

    def claimed(self, partition: Partition) -> None:
        """The partition is led from now on; a leader before may have left slices.

        Leaders that change more often than this looks may leave more and more, until the record is full.
        """
        slices = unsealed(partition.record.segments)
        if slices:
            self._behind.setdefault(partition, self._now_ms())
        if len(slices) >= MANY_REFERENCES:
            self._there_is_much.set()

    async def run(self) -> None:
        """Store and seal until cancelled."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_sec):
                        await self._there_is_much.wait()
                if self._full and self._published_bytes < self._memory_bytes:
                    self._begin_full()
                else:
                    await self.look()
        finally:
            await self._large_ones.close()

    def _begin_full(self) -> None:
        """Begin to bring the partitions up to date that have a segment's worth."""
        self._there_is_much.clear()
        full, self._full = tuple(self._full), {}
        for partition in full:
            self._published_bytes -= self._sizes.pop(partition, 0)
            self._begin_large(partition)

    async def look(self) -> None:
        """Bring every partition up to date that is behind; those that have much to seal are only begun with."""
        self._there_is_much.clear()
        self._published_bytes = 0
        self._sizes.clear()
        self._full.clear()
        gathers: list[Gather] = []
        rest: list[Partition] = []
        for number, partition in enumerate(tuple(self._behind)):
            if number % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            log = partition.log
            plan = self._plan(partition)
            if partition in self._large or (plan.step is SealStep.SEAL and is_large(plan.sources)):
                self._begin_large(partition)
            elif plan.step is SealStep.GATHER and log is not None and log.may_publish:
                gathers.append(Gather(partition, log, plan.sources))
            else:
                rest.append(partition)
        await map_bounded(self._settle, rest, PARTITIONS_AT_ONCE)
        await self._gather(gathers)

    async def settled(self) -> None:
        """Return once no partition with much to seal is left."""
        await self._large_ones.settled()

    def _begin_large(self, partition: Partition) -> None:
        if partition not in self._large:
            self._large.add(partition)
            self._large_ones.add([partition])

    async def _settle_large(self, partition: Partition) -> None:
        try:
            await self._settle(partition, self._paced)
        finally:
            self._large.discard(partition)

    def _plan(self, partition: Partition) -> SealPlan:
        record = partition.record if partition.log is None else partition.log.record
        return plan_seal(unsealed(record.segments), self._waiting_ms(partition), self._limits)

    def _waiting_ms(self, partition: Partition) -> int:
        now_ms = self._now_ms()
        return now_ms - self._behind.get(partition, now_ms)

    # --- many partitions together

    async def _gather(self, gathers: Sequence[Gather]) -> None:
        by_journal: dict[str, list[Gather]] = {}
        for gather in gathers:
            if gather.partition.journal is not None:
                by_journal.setdefault(gather.partition.journal.journal_id, []).append(gather)
        for some in by_journal.values():
            journal = some[0].partition.journal
            assert journal is not None
            try:
                await self._gatherer.gather(journal, some)
            except StoreError as problem:
                logger.info("could not gather, trying again later", extra={"problem": str(problem)})

    # --- one partition

    async def _settle(self, partition: Partition, paced: PacedSegments | None = None) -> None:
        try:
            if await self._settle_fully(partition, paced or self._segments):
                self._behind.pop(partition, None)
        except Exception as problem:  # noqa: BLE001 - reported
            self._failed(partition, problem)

    def _failed(self, partition: Partition, problem: Exception) -> None:
        if isinstance(problem, FencedError):
            if partition.is_led:
                logger.warning(
                    "lost the leadership of a partition",
                    extra={"partition": str(partition.id), "why": str(problem)},
                )
            self._logs.apply(partition, Event.FENCED)
            self._behind.pop(partition, None)
        elif isinstance(problem, (StoreError, CorruptDataError, DamagedSourceError, MissingSourceError)):
            logger.info(
                "could not seal, trying again later",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
        else:
            self._failures.report(str(partition.id), problem)

    async def _settle_fully(self, partition: Partition, segments: SliceSegments | PacedSegments) -> bool:
        """Store the partition's record, and seal what is worthwhile; True if nothing is left in the journal.

        Raises `FencedError`, `StoreError`, `CorruptDataError`.
        """
        log = partition.log
        if log is None and partition.is_led and unsealed(partition.record.segments):
            log = await self._logs.open(partition)
        if log is None or not log.may_publish:
            return True
        # What comes meanwhile is for the next look: other partitions wait for the end of this one.
        until = log.record.log_end_offset
        while True:
            plan = self._plan(partition)
            if plan.step is not SealStep.SEAL:
                if log.is_ahead:
                    await self._logs.records.store(partition)
                return not unsealed(log.record.segments)
            await self._seal(partition, log, plan.sources, segments)
            rest = unsealed(log.record.segments)
            if not rest or partition.log is not log:
                return not log.is_ahead
            self._behind[partition] = self._now_ms()
            if rest[0].base_offset >= until:
                return False

    async def seal_some(self, partition: Partition) -> None:
        """Seal slices of the partition, however few. Raises `FencedError`, `StoreError`, `CorruptDataError`."""
        log = open_log(partition)
        sources = sources_of_segment(unsealed(log.record.segments))
        if sources:
            await self._seal(partition, log, sources, self._segments)

    async def _seal(
        self,
        partition: Partition,
        log: PartitionLog,
        sources: Sequence[SegmentReference],
        segments: SliceSegments | PacedSegments,
    ) -> None:
        """Seal the slices but those that cannot be read: these stay in their journal, and in the record.

        Once those behind such a slice are sealed, it is not among the newest any more, and is not tried again.
        """
        while True:
            problem: Exception
            try:
                sealed = await segments.create(partition, sources, self._index_version())
                break
            except KeyTakenError as taken:
                problem, sources = taken, sources[:-1]
            except (DamagedSourceError, MissingSourceError) as found:
                problem, sources = found, _beside(sources, found.source)
                if sources:
                    logger.warning(
                        "a slice that cannot be read is left out of a segment",
                        extra={"partition": str(partition.id), "problem": str(problem)},
                    )
            if not sources:
                # Without it the entries behind its position would stay, and a claim would read them all.
                await self._logs.records.store(partition)
                raise CorruptDataError(str(partition.id), f"slices cannot be sealed: {problem}") from problem
        if await swap_slices(self._logs, partition, log, sources, sealed):
            self._logs.reader.forget_segments(partition, sources)

    async def make_room(self, partition: Partition, log: PartitionLog) -> None:
        """Seal until the record has room for another slice, or the log is closed; retries while a store is away."""
        delay_sec = _FIRST_RETRY_SEC
        while log.may_publish and not log.has_room and partition.log is log:
            try:
                if not unsealed(log.record.segments):
                    return
                await self.seal_some(partition)
                continue
            except FencedError:
                return
            except (StoreError, CorruptDataError) as problem:
                logger.warning(
                    "could not seal, and the record has no room",
                    extra={"partition": str(partition.id), "problem": str(problem)},
                )
            await asyncio.sleep(delay_sec)
            delay_sec = min(2 * delay_sec, _LAST_RETRY_SEC)


def _beside(sources: Sequence[SegmentReference], damaged: SegmentReference) -> Sequence[SegmentReference]:
    """The sources before the damaged one; if it is the first, those behind it."""
    at = sources.index(damaged)
    return sources[:at] or sources[at + 1 :]
