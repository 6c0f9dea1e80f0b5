"""Publishes a merged segment in the place of its sources: a checkpoint with the new list, then the record.

Both are needed, because the record itself names only the newest segments. Until the record names the checkpoint
nothing has changed; from then on nothing names the sources (docs/decisions/0016-merging.md).
"""

import logging
from collections.abc import Callable, Collection, Sequence
from weakref import WeakKeyDictionary

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import SegmentReference
from kafscale.log import checkpointer as checkpoints
from kafscale.log.checkpoint_pointer import with_checkpoint
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.references import SegmentReferences
from kafscale.log.writing.record_writer import FencedError

logger = logging.getLogger(__name__)


def is_unchanged(found: Sequence[SegmentReference], sources: Sequence[SegmentReference]) -> bool:
    """True if the references in the place of a merged segment are still its sources."""
    return list(found) == list(sources)


class SegmentSwap:
    """Swaps references in the records of partitions that this broker leads."""

    def __init__(self, logs: LogManager, checkpointer: Checkpointer, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._logs = logs
        self._checkpointer = checkpointer
        self._listed_ms: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()

    async def publish(
        self,
        partition: Partition,
        merged: SegmentReference,
        sources: Sequence[SegmentReference],
        gone_transactions: Collection[int] = (),
    ) -> list[SegmentReference]:
        """Let the record name `merged` in the place of its sources; returns the sources, which nothing names then.

        `gone_transactions`: aborted transactions without records, by the offsets of their markers: readers need not
        know of them any more, and must not once the markers are gone.

        Returns none, without a change, if the first has expired meanwhile, or the log has others in their place:
        records that are not in `merged` would be lost. Raises `FencedError`, `StoreError`.
        """
        async with self._checkpointer.alone(partition):
            log, references = partition.log, partition.references
            if log is None or references is None or not partition.is_led:
                raise FencedError(f"this broker does not lead {partition.id} any more")
            swapped = SegmentReferences(references)
            if not is_unchanged(swapped.replace(merged), sources):
                return []
            named_end_offset = log.record.checkpoint_end_offset
            gone = frozenset(gone_transactions)
            pointer = await self._checkpointer.write(partition, log, swapped, gone)
            async with partition.record_lock:
                if not is_unchanged(references.sources_of(merged), sources):
                    # A merged segment published now would begin where no segment does any more, and garbage.py
                    # takes such segments for orphans.
                    return []
                await self._logs.records.write(
                    partition, log, lambda record: with_checkpoint(record, pointer)
                )
                replaced = references.replace(merged)
                if partition.aborted is not None:
                    partition.aborted.remove(gone)
        if not self._is_listing_due(partition):
            return replaced
        try:
            await self._checkpointer.remove_superseded(partition, named_end_offset)
        except (StoreError, CorruptDataError) as problem:
            # The next checkpoint's writer looks again.
            logger.info(
                "could not remove old checkpoints",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
        return replaced

    def _is_listing_due(self, partition: Partition) -> bool:
        """True if old checkpoints may be deleted by now that the last listing had to leave.

        A busy partition is merged every few seconds, and a listing costs as much as an upload.
        """
        now_ms = self._steady_ms()
        listed_ms = self._listed_ms.get(partition)
        if listed_ms is not None and now_ms - listed_ms < checkpoints.SUPERSEDED_GRACE_MS:
            return False
        self._listed_ms[partition] = now_ms
        return True
