"""Reads the places at which segments can be divided from their indexes."""

from collections.abc import Sequence

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats import object_keys
from kafscale.formats.index import SparseIndex, parse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.formats.segment_layout import layout_of
from kafscale.lake.batch_size import Cut
from kafscale.objects.object_store import ObjectReader
from kafscale.reader import splits
from kafscale.reader.topic_state import PartitionLog
from kafscale.tasks.bounded import map_bounded

_INDEXES_AT_ONCE = 16


async def read_cuts(
    objects: ObjectReader, namespace: str, segments: Sequence[tuple[PartitionLog, SegmentReference]]
) -> list[Sequence[Cut]]:
    """For each segment the cuts that its index has; none for one without a usable index. Raises `StoreError`."""

    async def read(segment: tuple[PartitionLog, SegmentReference]) -> Sequence[Cut]:
        log, reference = segment
        key = object_keys.key_of_reference(namespace, log.topic, log.partition, reference)
        if not object_keys.has_index(key):
            return ()
        index_key = object_keys.index_key_of(key)
        try:
            index = parse_index(index_key, await objects.get(index_key), reference.base_offset)
            index.check(last_offset=reference.last_offset, body_end=reference.size_bytes - FOOTER_SIZE)
        except (ObjectNotFoundError, CorruptDataError):
            # Merged or expired meanwhile, which the read of the batch finds out; or it is read as one piece.
            return ()
        return cuts_of(index, reference)

    return await map_bounded(read, segments, _INDEXES_AT_ONCE)


def cuts_of(index: SparseIndex, reference: SegmentReference) -> list[Cut]:
    """The cuts of a segment by its index, which has been checked."""
    ends: set[int] = set()
    if reference.size_bytes > splits.WHOLE_SEGMENT_BYTES:
        layout = layout_of(
            index,
            last_offset=reference.last_offset,
            body_end=reference.size_bytes - FOOTER_SIZE,
            chunk_bytes=splits.CHUNK_BYTES,
        )
        ends = {chunk.first_offset for chunk in splits.chunks_of_layout(layout, reference)}
    return [
        Cut(offset, position - HEADER_SIZE, offset in ends)
        for offset, position in zip(index.offsets, index.positions, strict=True)
    ]
