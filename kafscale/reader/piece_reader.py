"""Reads one piece of a split from the object store, and tries every remedy before it counts as damaged."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_walk import BrokenChainError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment_check import OtherTopicError, UncertainChunkError
from kafscale.formats.segment_layout import SegmentLayout
from kafscale.formats.segment_scan import SegmentScan
from kafscale.objects.object_store import ObjectReader
from kafscale.reader.aborted_batches import NONE_ABORTED, AbortedBatches
from kafscale.reader.piece_check import Located, PieceCheck
from kafscale.reader.splits import CHUNK_BYTES, Piece, chunks_of_layout, pieces_of
from kafscale.reader.stored_batches import StoredBatches
from kafscale.tasks.bounded import in_order_ahead

logger = logging.getLogger(__name__)

_SCANNED_BYTES = 2 * 1024 * 1024
# Together with the limit above this bounds the memory of a scan.
_SCANNED_AHEAD = 4


async def read_piece(
    objects: ObjectReader,
    namespace: str,
    located: Located,
    piece: Piece,
    *,
    any_epoch: bool = False,
    aborted: AbortedBatches = NONE_ABORTED,
) -> AsyncGenerator[StoredBatches, None]:
    """The piece's batches: all at once or, if only the whole segment's CRC covers them, chunk after chunk.

    A damaged piece is read once more. A large segment whose index is missing, wrong or not sufficient is scanned as
    a whole first. Raises `CorruptDataError`, `OtherTopicError` among them unless `any_epoch`, `ObjectNotFoundError`,
    and the store's `StoreError`.
    """
    parts: list[Piece] = []
    if piece.is_undivided:
        parts = await _verified_parts(objects, namespace, located, piece)
    else:
        try:
            check = PieceCheck(namespace, located, piece, aborted)
            yield await _read_twice(objects, check, any_epoch=any_epoch)
        except (UncertainChunkError, BrokenChainError) as problem:
            if piece.chunk is None:
                raise
            logger.warning("verifying a segment as a whole", extra={"problem": str(problem)})
            parts = await _verified_parts(objects, namespace, located, piece)
    for part in parts:
        check = PieceCheck(namespace, located, part, aborted)
        yield await _read_twice(objects, check, any_epoch=any_epoch)


async def _read_twice(objects: ObjectReader, check: PieceCheck, *, any_epoch: bool) -> StoredBatches:
    try:
        return await _read_once(objects, check, any_epoch)
    except (OtherTopicError, UncertainChunkError):
        raise
    except CorruptDataError as problem:
        # The transfer may have been damaged.
        logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
    return await _read_once(objects, check, any_epoch)


async def _read_once(objects: ObjectReader, check: PieceCheck, any_epoch: bool) -> StoredBatches:
    read = await objects.get_range(check.object_key, check.start, check.length)
    return await asyncio.to_thread(check.batches, memoryview(read), any_epoch=any_epoch)


async def _verified_parts(
    objects: ObjectReader, namespace: str, located: Located, piece: Piece
) -> list[Piece]:
    """The chunks with wanted offsets of the piece, with their CRCs; the segment was checked by that of its body."""
    key, reference = PieceCheck(namespace, located, piece).object_key, piece.reference
    try:
        layout = await _scan(objects, key, reference)
    except CorruptDataError as problem:
        logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
        layout = await _scan(objects, key, reference)
    return pieces_of(reference, chunks_of_layout(layout, reference), piece.first_offset, piece.next_offset)


async def _scan(objects: ObjectReader, key: str, reference: SegmentReference) -> SegmentLayout:
    scan = SegmentScan(key, reference, CHUNK_BYTES)
    positions = range(0, reference.size_bytes, _SCANNED_BYTES)

    async def read(position: int) -> bytes:
        length = min(_SCANNED_BYTES, reference.size_bytes - position)
        return await objects.get_range(key, reference.start + position, length)

    async with aclosing(in_order_ahead(read, positions, _SCANNED_AHEAD)) as read_parts:
        async for part in read_parts:
            await asyncio.to_thread(scan.feed, memoryview(part))
    return scan.finish()
