"""The batches of slices: from the broker's memory as long as they are there, else checked as they are read."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.life.combined_slice import SliceBody
from kafscale.log.life.segment_merge import DamagedSourceError
from kafscale.log.life.source_reads import MissingSourceError, RangeReader
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.reading.segment_inspection import SegmentInspection
from kafscale.tasks.in_turns import Turns

_COSTLY_BYTES = 16 * 1024
_SLICES_PER_TURN = 16
"""About 0.2 ms, and several partitions are read at once: the many slices in memory need not wait for anything."""


class SliceBodies:
    """`objects`: the way to what is not in the caches of `reader`."""

    def __init__(self, reader: LogReader, objects: RangeReader) -> None:
        self._reader = reader
        self._objects = objects
        self._turns = Turns(_SLICES_PER_TURN)

    async def read(self, partition: Partition, sources: Sequence[SegmentReference]) -> list[SliceBody]:
        """The slices with their batches. Raises `DamagedSourceError`, `MissingSourceError`, `StoreError`."""
        bodies = []
        for one in sources:
            bodies.append(SliceBody(one, await self._body(partition, one)))
            await self._turns.part_done()
        return bodies

    def held(
        self, partition: Partition, sources: Sequence[SegmentReference], until: ExitStack
    ) -> list[CachedSegment] | None:
        """The slices if this broker wrote all of them and has them in memory, held until the end of `until`."""
        found = [self._reader.written(partition, one) for one in sources]
        held = [one for one in found if one is not None]
        if len(held) < len(found):
            return None
        for one in held:
            until.callback(one.hold().release)
        return held

    async def _body(self, partition: Partition, source: SegmentReference) -> bytes:
        held = self._reader.copy_of(partition, source)
        if held is not None:
            return held
        try:
            image = await self._objects.get_range(source.object_key, source.start, source.size_bytes)
            if len(image) > _COSTLY_BYTES:
                await asyncio.to_thread(_check, partition, source, image)
            else:
                _check(partition, source, image)
        except ObjectNotFoundError as problem:
            raise MissingSourceError(source, problem) from problem
        except CorruptDataError as problem:
            raise DamagedSourceError(source, problem) from problem
        return image[HEADER_SIZE:-FOOTER_SIZE]


def _check(partition: Partition, source: SegmentReference, image: bytes) -> None:
    """Raises `CorruptDataError` unless the image agrees with its checksums and with the reference."""
    inspection = SegmentInspection(source.object_key, None, source.size_bytes, lists_batches=False)
    inspection.feed(image)
    found = inspection.finish()
    has = (found.base_offset, found.last_offset, found.record_count)
    if has != (source.base_offset, source.last_offset, source.record_count):
        raise CorruptDataError(
            source.object_key,
            f"the slice of {partition.id} has {found.record_count} records at offsets {found.base_offset} to "
            f"{found.last_offset}, its record says {source.record_count} at {source.base_offset} to "
            f"{source.last_offset}",
        )
