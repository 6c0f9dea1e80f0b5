"""Drops expired segments of the partitions that this broker leads, periodically.

retention.py decides what has expired. A check of a partition costs the stores nothing unless a segment is due: an
open log knows its oldest segment; for one that is not open, whose record cannot change meanwhile, the time when its
next segment is due is remembered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE, parse_header
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.retention import Expiry, RetentionLimits, expiry, is_undated, limits_of
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import ExpiryReason, Metrics
from kafscale.tasks.bounded import map_bounded

logger = logging.getLogger(__name__)

_LOOKS_PER_TURN = 100
_HEADERS_AT_ONCE = 16
_MOST_HEADERS_PER_STEP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The result of the last check: its limits, when the next segment is due, and the ages that were read."""

    limits: RetentionLimits
    due_ms: int | None
    created_ms: dict[int, int]


class RetentionEnforcer:
    """Checks all partitions that this broker leads every `interval_ms`."""

    def __init__(
        self,
        logs: LogManager,
        objects: ObjectStore,
        checkpointer: Checkpointer,
        log_start: LogStart,
        namespace: str,
        now_ms: Callable[[], int],
        metrics: Metrics,
        *,
        interval_ms: int,
    ) -> None:
        self._logs = logs
        self._objects = objects
        self._checkpointer = checkpointer
        self._log_start = log_start
        self._namespace = namespace
        self._now_ms = now_ms
        self._metrics = metrics
        self._interval_sec = interval_ms / 1000
        self._known: dict[Partition, _Known] = {}
        self._failures = ItemFailures(BackgroundWork.RETENTION, metrics.background_failures)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(self._interval_sec)
            await self.look()

    async def look(self) -> None:
        """Drop all segments that have expired."""
        led = [partition for partition in self._logs.partitions() if partition.is_led]
        self._known = {partition: self._known[partition] for partition in led if partition in self._known}
        for number, partition in enumerate(led):
            if number % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                await self.enforce(partition)
            except FencedError as fenced:
                # Another broker leads it, and checks it itself.
                logger.debug("left to another leader: %s", fenced)
            except (StoreError, CorruptDataError) as problem:
                logger.warning(
                    "could not enforce retention, looking again later",
                    extra={"partition": str(partition.id), "problem": str(problem)},
                )
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(partition.id, problem)

    async def enforce(self, partition: Partition) -> int:
        """Drop the partition's expired segments; returns how many.

        Raises `FencedError`, `StoreError`, `CorruptDataError`.
        """
        limits = limits_of(partition.config)
        if limits is None or partition.record.log_start_offset == partition.record.log_end_offset:
            self._known.pop(partition, None)
            return 0
        known = self._known.get(partition)
        if known is None or known.limits != limits:
            known = _Known(limits=limits, due_ms=0, created_ms={})
        if partition.references is None and (known.due_ms is None or self._now_ms() < known.due_ms):
            return 0
        references, size_bytes = await self._references(partition)
        found = expiry(references, size_bytes, limits, self._now_ms(), known.created_ms)
        if found.is_undecided:
            references = list(references)
            found = await self._with_ages(partition, references, size_bytes, known)
        expired = list(islice(references, found.count))
        next_offset = expired[-1].last_offset + 1 if expired else 0
        ages = {offset: age for offset, age in known.created_ms.items() if offset >= next_offset}
        if ages or partition.references is None:
            due_ms = 0 if expired else found.due_ms
            self._known[partition] = _Known(limits=limits, due_ms=due_ms, created_ms=ages)
        else:
            self._known.pop(partition, None)
        return await self._drop(partition, expired, found.over_size) if expired else 0

    async def _references(self, partition: Partition) -> tuple[Iterable[SegmentReference], int]:
        """All references of the log. A checkpoint that is read for them is not kept: most logs have none expired."""
        if partition.references is not None:
            return partition.references, partition.references.size_bytes
        # The record as it is now: a later one may name a newer checkpoint, and no longer the segments in between.
        record = partition.record
        checkpoint = await self._checkpointer.load(partition)
        references = [
            reference
            for reference in (*checkpoint.segments, *record.segments)
            if reference.last_offset >= record.log_start_offset
        ]
        return references, sum(reference.size_bytes for reference in references)

    async def _with_ages(
        self, partition: Partition, references: Sequence[SegmentReference], size_bytes: int, known: _Known
    ) -> Expiry:
        """The expired segments, once the relevant ages of segments without a timestamp are read."""
        now_ms, created_ms = self._now_ms(), known.created_ms
        headers = 1

        async def read(reference: SegmentReference) -> None:
            created_ms[reference.base_offset] = await self._created_ms(partition, reference)

        while (found := expiry(references, size_bytes, known.limits, now_ms, created_ms)).is_undecided:
            following = (
                reference
                for reference in islice(references, found.count, None)
                if is_undated(reference) and reference.base_offset not in created_ms
            )
            await map_bounded(read, list(islice(following, headers)), _HEADERS_AT_ONCE)
            headers = min(2 * headers, _MOST_HEADERS_PER_STEP)
        return found

    async def _created_ms(self, partition: Partition, reference: SegmentReference) -> int:
        key = object_keys.key_of_reference(self._namespace, partition.id.topic, partition.id.index, reference)
        try:
            header = await self._objects.get_range(key, reference.start, HEADER_SIZE)
        except ObjectNotFoundError:
            self._logs.report_missing(partition, reference)
            raise
        return parse_header(key, header).created_ms

    async def _drop(self, partition: Partition, expired: Sequence[SegmentReference], over_size: int) -> int:
        moved = await self._log_start.drop(partition, expired[-1])
        # A segment that was merged or dropped meanwhile is another one now, or none.
        size_end = expired[over_size - 1].last_offset if over_size else -1
        for reference in moved.dropped:
            reason = ExpiryReason.SIZE if reference.last_offset <= size_end else ExpiryReason.TIME
            self._metrics.segments_expired[reason] += 1
            self._metrics.bytes_expired[reason] += reference.size_bytes
        logger.info(
            "segments have expired",
            extra={
                "partition": str(partition.id),
                "segments": len(moved.dropped),
                "bytes": sum(reference.size_bytes for reference in moved.dropped),
                "log_start_offset": moved.log_start_offset,
            },
        )
        return len(moved.dropped)
