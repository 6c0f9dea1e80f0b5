"""Writes the object of a merged segment: reads, checks and forwards its sources piece by piece."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby

from kafscale.errors import CorruptDataError, ObjectExistsError, ObjectNotFoundError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_header
from kafscale.log.life.merged_segment import MergedSegment
from kafscale.log.life.pace import Pace
from kafscale.log.partition import PartitionId
from kafscale.log.reading.segment_inspection import SegmentInspection
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer
from kafscale.tasks.bounded import in_order_ahead

PIECE_BYTES = 2 * 1024 * 1024
# With the size of a piece this bounds the memory of a merge.
_PIECES_AHEAD = 8
# Checking more than this takes long enough to be felt on the event loop.
_COSTLY_BYTES = 16 * 1024


class KeyTakenError(Exception):
    """Another object has the key of a merged segment: one of an older topic of the name, for example."""


class DamagedSourceError(Exception):
    """A source does not agree with the record. It stays as it is; `source` names it."""

    def __init__(self, source: SegmentReference, problem: CorruptDataError) -> None:
        super().__init__(str(problem))
        self.source = source


class MissingSourceError(Exception):
    """A source has no object any more; `source` names it."""

    def __init__(self, source: SegmentReference, problem: ObjectNotFoundError) -> None:
        super().__init__(str(problem))
        self.source = source


@dataclass(frozen=True, slots=True)
class _Piece:
    source: SegmentReference
    key: str
    start: int
    length: int


class SegmentMerge:
    """Merges segments of any partition, at a pace. It publishes nothing."""

    def __init__(self, objects: ObjectStore, namespace: str, pace: Pace) -> None:
        self._objects = objects
        self._namespace = namespace
        self._pace = pace

    async def create(
        self, partition: PartitionId, sources: Sequence[SegmentReference], index_version: int
    ) -> SegmentReference:
        """Store the merged segment and its index; returns its reference.

        An earlier attempt may have stored it already. Raises `DamagedSourceError`, `MissingSourceError`,
        `KeyTakenError`, `IndexPositionError`, `StoreError`.
        """
        names = [self._key(partition, source) for source in sources]
        key = object_keys.merged_segment_key(
            self._namespace, partition.topic, partition.index, sources[0].base_offset, sources[-1].last_offset
        )
        newest = await self._read(_Piece(sources[-1], names[-1], sources[-1].start, HEADER_SIZE))
        try:
            merged = MergedSegment(sources, parse_header(names[-1], newest))
        except CorruptDataError as problem:
            raise DamagedSourceError(sources[-1], problem) from problem
        async with aclosing(self._chunks(merged, list(zip(sources, names, strict=True)))) as chunks:
            try:
                await self._objects.put_if_absent_streamed(key, chunks, merged.size_bytes)
            except ObjectExistsError:
                async for _ in chunks:
                    pass  # The bytes are still needed to compare.
                await self._check_existing(key, merged)
        await self._objects.put(object_keys.index_key_of(key), [merged.index(index_version)])
        return merged.reference(key)

    def _key(self, partition: PartitionId, source: SegmentReference) -> str:
        return object_keys.key_of_reference(self._namespace, partition.topic, partition.index, source)

    async def _chunks(
        self, merged: MergedSegment, sources: Sequence[tuple[SegmentReference, str]]
    ) -> AsyncGenerator[Buffer, None]:
        """The bytes of the merged segment. Raises `DamagedSourceError`, `MissingSourceError`, `StoreError`."""
        yield merged.header
        pieces = [piece for source, key in sources for piece in _pieces(source, key)]
        async with aclosing(in_order_ahead(self._read, pieces, _PIECES_AHEAD)) as contents:
            for source, of_source in groupby(pieces, key=lambda piece: piece.source):
                try:
                    for piece in of_source:
                        if piece.start == source.start:
                            merged.begin(piece.key, source)
                        content = await anext(contents)
                        await self._pace.spend(len(content))
                        for view in await _off_the_loop(merged, content):
                            yield view
                    merged.end()
                except CorruptDataError as problem:
                    raise DamagedSourceError(source, problem) from problem
        yield merged.footer

    async def _read(self, piece: _Piece) -> bytes:
        try:
            return await self._objects.get_range(piece.key, piece.start, piece.length)
        except ObjectNotFoundError as problem:
            raise MissingSourceError(piece.source, problem) from problem

    async def _check_existing(self, key: str, merged: MergedSegment) -> None:
        """Raises `KeyTakenError` unless the object under the key equals the merged segment."""
        size_bytes = await self._objects.size_bytes(key)
        if size_bytes != merged.size_bytes:
            raise KeyTakenError(f"{key} has {size_bytes} bytes, the merged segment {merged.size_bytes}")
        whole = merged.reference(key)
        ends = [(0, HEADER_SIZE), (size_bytes - FOOTER_SIZE, FOOTER_SIZE)]
        found = [await self._objects.get_range(key, start, length) for start, length in ends]
        if found != [merged.header, merged.footer]:
            raise KeyTakenError(f"{key} has other batches than the segments that are to be merged")
        parsed = object_keys.parse_segment_key(key)
        assert parsed is not None
        inspection = SegmentInspection(key, parsed, size_bytes, lists_batches=False)
        try:
            async with aclosing(
                in_order_ahead(self._read, list(_pieces(whole, key)), _PIECES_AHEAD)
            ) as contents:
                async for content in contents:
                    await self._pace.spend(len(content))
                    await asyncio.to_thread(inspection.feed, content)
            inspection.finish()
        except CorruptDataError as problem:
            raise KeyTakenError(str(problem)) from problem


def _pieces(source: SegmentReference, key: str) -> Iterator[_Piece]:
    for position in range(0, source.size_bytes, PIECE_BYTES):
        length = min(PIECE_BYTES, source.size_bytes - position)
        yield _Piece(source, key, source.start + position, length)


async def _off_the_loop(merged: MergedSegment, content: bytes) -> list[memoryview]:
    if len(content) > _COSTLY_BYTES:
        return await asyncio.to_thread(merged.feed, content)
    return merged.feed(content)
