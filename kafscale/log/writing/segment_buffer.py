"""The batches that will become one segment, laid one after the other in slabs while they are collected."""

from struct import Struct
from typing import NamedTuple, Protocol

from kafscale.formats.partition_transactions import BatchKind
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.memory.slab import Slab, SlabPool
from kafscale.protocol.compression import Codec
from kafscale.protocol.types import Buffer

_OFFSET_LENGTH_EPOCH = Struct(">qii")
_SEGMENT_HEADER_BYTES = 32
_BATCH_PREFIX_BYTES = 12

COSTLY_BATCHES = 2000

SEGMENT_BUFFER_LIMIT_BYTES = 64 * 1024 * 1024
MOST_SEGMENT_PRODUCERS = 1024
"""Idempotent producers with a batch in one segment: they all go into the partition's record."""


class AppendWaiter(Protocol):
    """Receives the outcome of one partition of a produce request."""

    def published(self, base_offset: int, log_start_offset: int) -> None:
        """The records are in the object store and published."""

    def refused(self, error_code: int, message: str) -> None:
        """The records will not be published."""


class ProducerAppend(NamedTuple):
    """A batch of a producer in a buffer. `relative_offset` counts from the buffer's first record."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    relative_offset: int
    kind: BatchKind = BatchKind.PLAIN


class SegmentBuffer:
    """One segment in the making. Offsets are relative to its first one until it is sealed.

    `codec` is what the segment's header will name: the batches' codec where they agree, else none.
    `charged_bytes` is what the memory budget was charged for the buffer. `producers`: those of `producer_batches`.
    """

    __slots__ = (
        "_batches",
        "_slabs",
        "charged_bytes",
        "codec",
        "first_append_ms",
        "max_timestamp_ms",
        "producer_batches",
        "producers",
        "record_count",
        "size_bytes",
        "times",
        "waiters",
    )

    def __init__(self, first_append_ms: int) -> None:
        self._slabs: list[Slab] = []
        self._batches: list[tuple[memoryview, int, int, int, int, int]] = []
        self.first_append_ms = first_append_ms
        self.size_bytes = 0
        self.record_count = 0
        self.max_timestamp_ms = -1
        self.charged_bytes = 0
        self.times = FlushTimes()
        self.codec = Codec.NONE
        self.waiters: list[tuple[AppendWaiter, int]] = []
        self.producer_batches: list[ProducerAppend] = []
        self.producers: set[int] = set()

    @property
    def is_full(self) -> bool:
        """True if the next batch belongs into another segment."""
        return self.size_bytes >= SEGMENT_BUFFER_LIMIT_BYTES or len(self.producers) >= MOST_SEGMENT_PRODUCERS

    def room(self, size_bytes: int, pool: SlabPool) -> memoryview:
        """Contiguous memory of `size_bytes` at the buffer's end, to be filled and then taken by `add`."""
        if not self._slabs or self._slabs[-1].room_bytes < size_bytes:
            self._slabs.append(pool.acquire(size_bytes, wanted_bytes=self.size_bytes))
        slab = self._slabs[-1]
        return slab.view[slab.used_bytes : slab.used_bytes + size_bytes]

    def add(self, size_bytes: int, record_count: int, max_timestamp_ms: int, codec: Codec) -> None:
        """Take the batch that was written into `room`."""
        slab = self._slabs[-1]
        if codec is not self.codec:
            self.codec = codec if not self._batches else Codec.NONE
        self._batches.append(
            (
                slab.view,
                slab.used_bytes,
                size_bytes - _BATCH_PREFIX_BYTES,
                self.record_count,
                _SEGMENT_HEADER_BYTES + self.size_bytes,
                record_count,
            )
        )
        slab.used_bytes += size_bytes
        self.size_bytes += size_bytes
        self.record_count += record_count
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Write the offsets and the leader epoch into every batch; neither is under the batch's CRC."""
        pack_into = _OFFSET_LENGTH_EPOCH.pack_into
        for view, position, batch_length, relative_offset, _, _ in self._batches:
            pack_into(view, position, base_offset + relative_offset, batch_length, leader_epoch)

    def index_entries(self, base_offset: int) -> list[tuple[int, int, int]]:
        """(base offset, position in the file, record count) of every batch."""
        return [
            (base_offset + relative, file_position, count)
            for _, _, _, relative, file_position, count in self._batches
        ]

    @property
    def is_costly_to_seal(self) -> bool:
        """True if `stamp` and `index_entries` would delay the event loop for too long."""
        return len(self._batches) > COSTLY_BATCHES

    def body(self) -> list[Buffer]:
        """The batches as few contiguous views."""
        return [slab.content() for slab in self._slabs]

    def take_slabs(self) -> list[Slab]:
        """Hand the memory over; the buffer is not used afterwards."""
        slabs, self._slabs, self._batches = self._slabs, [], []
        return slabs
