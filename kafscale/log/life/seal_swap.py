"""Publishes what slices have become: the partition's record and references name it in their place."""

from collections.abc import Sequence
from dataclasses import replace

from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.writing.record_writer import FencedError, open_log


async def swap_slices(
    logs: LogManager,
    partition: Partition,
    log: PartitionLog,
    sources: Sequence[SegmentReference],
    made: SegmentReference,
) -> bool:
    """Name `made` in the place of the slices; False if some of these have expired meanwhile.

    The same write stores everything else that is published. Raises `FencedError`.
    """
    async with partition.record_lock:
        if open_log(partition) is not log:
            raise FencedError(f"the log of {partition.id} was closed meanwhile")
        if not _are_there(log.record, sources):
            return False
        await logs.records.write(partition, log, lambda record: _swapped(record, sources, made))
        if partition.references is not None:
            partition.references.replace(made)
        return True


def _are_there(record: PartitionRecord, sources: Sequence[SegmentReference]) -> bool:
    return set(sources) <= set(record.segments)


def _swapped(
    record: PartitionRecord, sources: Sequence[SegmentReference], made: SegmentReference
) -> PartitionRecord:
    gone = set(sources)
    at = record.segments.index(sources[0])
    rest = tuple(one for one in record.segments if one not in gone)
    return replace(record, segments=(*rest[:at], made, *rest[at:]))
