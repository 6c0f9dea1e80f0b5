"""Cached segments of slices and segments just written: their records are read from memory, without a request."""

from collections.abc import Sequence

from kafscale.formats.index import interval_for, sparse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.sealed_segment import SealedSegment
from kafscale.memory.slab import SlabPool

# Batches are copied out of slabs that are less used than this, so that the cache does not keep the unused rest.
_KEPT_SLAB_FILL = 0.5


def published_segment(partition: Partition, sealed: SealedSegment, pool: SlabPool) -> CachedSegment:
    """A segment that was flushed. Takes over the memory of its buffer, which is of `pool`."""
    body = sealed.buffer.body()
    slabs = sealed.buffer.take_slabs()
    filled = sum(slab.used_bytes for slab in slabs)
    if filled >= _KEPT_SLAB_FILL * sum(slab.capacity_bytes for slab in slabs):
        pieces = [memoryview(part) for part in body]
    else:
        pieces = [memoryview(b"".join(body))]
        for slab in slabs:
            pool.release(slab)
        slabs = []
    return CachedSegment(
        sealed.reference,
        pieces,
        HEADER_SIZE,
        sealed.index,
        partition_number=partition.number,
        slabs=slabs,
        pool=pool,
    )


def combined_segment(
    partition: Partition,
    reference: SegmentReference,
    batches: bytes,
    index_entries: Sequence[tuple[int, int, int]],
) -> CachedSegment:
    """The segment made of several slices. `index_entries`: base offset, position and record count of each of them."""
    interval = interval_for(reference.size_bytes, reference.record_count)
    return CachedSegment(
        reference,
        [memoryview(batches)],
        HEADER_SIZE,
        sparse_index("combined slice", index_entries, interval),
        partition_number=partition.number,
    )
