"""Reads one split in a Spark task: from the object store into Arrow record batches."""

import asyncio
from collections.abc import Iterator

import pyarrow as pa

from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.metadata.partition_record import PartitionRecord
from kafscale.settings import Settings
from kafscale.storage import object_keys
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.pieces import Pieces
from kafscale.storage.reading.segment_check import Expected, check_chunk, check_whole, wanted_bytes
from kafscale.storage.segment import HEADER_SIZE
from kafscale.stores import _open_objects
from spark_jobs.source.record_columns import StoredBatches, record_columns
from spark_jobs.source.splits import Piece, Split


class ExpiredRangeError(KafscaleError):
    """Offsets that a split holds expired before they were read; the message names them."""


def read_split(settings: Settings, split: Split, *, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The split's records, in order, in batches of the schema `arrow_schema(include_headers)`.

    Every byte was held against a checksum. Raises `CorruptDataError`, `ExpiredRangeError`, `StoreError`.
    """
    yield from record_columns(
        _stored(settings, split), split.topic, split.partition, include_headers=include_headers
    )


def _stored(settings: Settings, split: Split) -> Iterator[StoredBatches]:
    with asyncio.Runner() as runner:
        objects = _open_objects(settings)
        try:
            for piece in split.pieces:
                yield runner.run(_read(objects, settings.s3_namespace, split, piece))
        finally:
            runner.run(objects.close())


async def _read(objects: ObjectStore, namespace: str, split: Split, piece: Piece) -> StoredBatches:
    reference = piece.reference
    key = object_keys.key_of_reference(namespace, split.topic, split.partition, reference)
    record = PartitionRecord(leader_epoch=0, epochs=split.epochs)
    expected = Expected(key, reference, record)
    if piece.chunk is None:
        start, length = 0, reference.size_bytes
    else:
        start, length = wanted_bytes(expected, piece.chunk)
    data = await objects.get_range(key, reference.start + start, length)
    if len(data) != length:
        raise CorruptDataError(key, f"{len(data)} bytes where there should be {length}")
    file = Pieces([memoryview(data)], start)
    if piece.chunk is None:
        check_whole(expected, file, is_from_replica=False)
        body = file.contiguous(HEADER_SIZE, expected.body_end)
    else:
        check_chunk(expected, piece.chunk, file, is_from_replica=False)
        body = file.contiguous(piece.chunk.start, piece.chunk.end)
    return StoredBatches(name=key, data=body, first_offset=piece.first_offset, next_offset=piece.next_offset)
