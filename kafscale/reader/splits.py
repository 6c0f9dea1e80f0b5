"""Divides a range of a partition's offsets into pieces, each read with one request, and those into splits.

Many small segments go into one split, a large one is divided at the batches that its index lists. Planning reads no
segment: sizes are in the references, and only a large segment's index is read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats import object_keys
from kafscale.formats.index import parse_index
from kafscale.formats.partition_record import EpochStart, SegmentReference
from kafscale.formats.segment import FOOTER_SIZE
from kafscale.formats.segment_layout import ChunkRange, SegmentLayout, layout_of
from kafscale.objects.object_store import ObjectReader
from kafscale.reader.aborted_batches import NONE_ABORTED, AbortedBatches
from kafscale.reader.topic_state import PartitionLog
from kafscale.tasks.bounded import map_bounded

MIB = 1024 * 1024
DEFAULT_SPLIT_BYTES = 64 * MIB

WHOLE_SEGMENT_BYTES = 16 * MIB
"""A segment of up to this size is read whole, with one request, and checked by the CRC of its body."""

CHUNK_BYTES = 8 * MIB
"""About this much of a larger one is read with one request."""

# A request takes time however few bytes it reads: smaller segments count as if they had this size.
REQUEST_BYTES = 64 * 1024
_INDEXES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The bytes of one request, and the wanted offsets in them: `first_offset` to before `next_offset`.

    `chunk` None: the whole segment. The wanted offsets are inside the segment, or the chunk; there may be gaps.
    """

    reference: SegmentReference
    first_offset: int
    next_offset: int
    chunk: ChunkRange | None = None

    @property
    def size_bytes(self) -> int:
        """The number of bytes of batches to read."""
        return self.reference.size_bytes if self.chunk is None else self.chunk.size_bytes

    @property
    def is_undivided(self) -> bool:
        """True for a large segment that no usable index divides: too much to be read at once."""
        return self.chunk is None and self.reference.size_bytes > WHOLE_SEGMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The work of one task: pieces of one partition, ascending, not empty. Can be pickled.

    `epochs`: the leader epochs in the partition's record at the time of planning. `aborted`: what is left out of the
    batches; it stays so wherever they lie by the time they are read.
    """

    topic: str
    topic_id: UUID
    partition: int
    # No repr: asyncio and signal.getsignal make one of what a call returns, which would be all of the plan.
    pieces: tuple[Piece, ...] = field(repr=False)
    size_bytes: int
    epochs: tuple[EpochStart, ...] = ()
    aborted: AbortedBatches = field(default=NONE_ABORTED, repr=False)

    @property
    def first_offset(self) -> int:
        """The first wanted offset."""
        return self.pieces[0].first_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last wanted one."""
        return self.pieces[-1].next_offset


def split_of(log: PartitionLog, pieces: Sequence[Piece]) -> Split:
    """The split of these pieces of the partition, of which there is one at least."""
    return Split(
        topic=log.topic,
        topic_id=log.topic_id,
        partition=log.partition,
        pieces=tuple(pieces),
        size_bytes=sum(piece.size_bytes for piece in pieces),
        epochs=log.epochs,
        aborted=AbortedBatches(log.aborted.between(pieces[0].first_offset, pieces[-1].next_offset)),
    )


async def plan_pieces(
    log: PartitionLog, objects: ObjectReader, namespace: str, first_offset: int, next_offset: int
) -> list[Piece]:
    """The requests that together read these offsets, ascending. Raises `StoreError`."""

    async def divided(reference: SegmentReference) -> list[Piece]:
        chunks = await _chunks(log, objects, namespace, reference)
        return pieces_of(reference, chunks, first_offset, next_offset)

    found = await map_bounded(
        divided, references_between(log.references, first_offset, next_offset), _INDEXES_AT_ONCE
    )
    return [piece for pieces in found for piece in pieces]


def references_between(
    references: Iterable[SegmentReference], first_offset: int, next_offset: int
) -> list[SegmentReference]:
    """The references with an offset from `first_offset` to before `next_offset`."""
    return [
        reference
        for reference in references
        if max(first_offset, reference.base_offset) < min(next_offset, reference.last_offset + 1)
    ]


def pieces_of(
    reference: SegmentReference, chunks: Sequence[ChunkRange], first_offset: int, next_offset: int
) -> list[Piece]:
    """The pieces of a segment to read for the offsets: the chunks with some; without `chunks`, all of it."""
    wanted_first = max(first_offset, reference.base_offset)
    wanted_next = min(next_offset, reference.last_offset + 1)
    if not chunks:
        return [Piece(reference=reference, first_offset=wanted_first, next_offset=wanted_next)]
    return [
        Piece(
            reference=reference,
            first_offset=max(wanted_first, chunk.first_offset),
            next_offset=min(wanted_next, chunk.next_offset),
            chunk=chunk,
        )
        for chunk in chunks
        if chunk.first_offset < wanted_next and chunk.next_offset > wanted_first
    ]


def group_pieces(pieces: Iterable[Piece], split_bytes: int) -> list[list[Piece]]:
    """Joins neighbours up to about `split_bytes` to read; a larger piece stays alone."""
    groups: list[list[Piece]] = []
    room_bytes = 0
    for piece in pieces:
        cost_bytes = max(piece.size_bytes, REQUEST_BYTES)
        if not groups or cost_bytes > room_bytes:
            groups.append([])
            room_bytes = split_bytes
        groups[-1].append(piece)
        room_bytes -= cost_bytes
    return groups


async def _chunks(
    log: PartitionLog, objects: ObjectReader, namespace: str, reference: SegmentReference
) -> list[ChunkRange]:
    """The chunks of a large segment; empty for one that is read whole, or has no usable index."""
    if reference.size_bytes <= WHOLE_SEGMENT_BYTES:
        return []
    key = object_keys.key_of_reference(namespace, log.topic, log.partition, reference)
    if not object_keys.has_index(key):
        return []
    index_key = object_keys.index_key_of(key)
    try:
        data = await objects.get(index_key)
        return chunks_of(index_key, data, reference)
    except (ObjectNotFoundError, CorruptDataError):
        # The task that reads the segment scans all of it, and finds its batches itself.
        return []


def chunks_of(index_key: str, data: bytes, reference: SegmentReference) -> list[ChunkRange]:
    """The chunks of a large segment by its index, none if that has too few entries.

    Raises `CorruptDataError` for an impossible index.
    """
    body_end = reference.size_bytes - FOOTER_SIZE
    index = parse_index(index_key, data, reference.base_offset)
    index.check(last_offset=reference.last_offset, body_end=body_end)
    layout = layout_of(index, last_offset=reference.last_offset, body_end=body_end, chunk_bytes=CHUNK_BYTES)
    return [] if layout.is_coarse else chunks_of_layout(layout, reference)


def chunks_of_layout(layout: SegmentLayout, reference: SegmentReference) -> list[ChunkRange]:
    """All chunks of the segment, ascending."""
    chunks: list[ChunkRange] = []
    offset = reference.base_offset
    while offset <= reference.last_offset:
        chunks.append(layout.at_offset(offset))
        offset = chunks[-1].next_offset
    return chunks
