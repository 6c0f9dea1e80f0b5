"""Reads the sources of merges: those of a window in as few ranges as possible, those of a large merge as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from kafscale.errors import ObjectNotFoundError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.life.merge_windows import Extent, Slice, extents
from kafscale.tasks.bounded import in_order_ahead
from kafscale.tasks.owner import TaskOwner

PIECE_BYTES: Final = 2 * 1024 * 1024
# With the size of a piece this bounds the memory of a merge that is streamed.
_PIECES_AHEAD: Final = 8


class MissingSourceError(Exception):
    """A source has no object any more; `source` names it."""

    def __init__(self, source: SegmentReference, problem: ObjectNotFoundError) -> None:
        super().__init__(str(problem))
        self.source = source


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source and the key of the object that it lies in."""

    reference: SegmentReference
    key: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a source. Fewer than were asked for where its object ends earlier."""

    source: NamedSource
    content: memoryview
    is_first: bool = True
    is_last: bool = True


class WindowReads:
    """The sources of a window, read side by side, each range once; they stay in memory until it ends.

    `number` is the place of a source among those that the window was opened with.
    """

    def __init__(
        self, sources: Sequence[NamedSource], reads: dict[int, tuple[Extent, asyncio.Task[bytes]]]
    ) -> None:
        self._sources = sources
        self._reads = reads

    async def content(self, number: int) -> memoryview:
        """The bytes of a source, fewer where its object ends earlier. Raises `MissingSourceError`, `StoreError`."""
        source = self._sources[number]
        extent, task = self._reads[number]
        try:
            # The others of the range need it, too, if this one's merge is cancelled.
            content = await asyncio.shield(task)
        except ObjectNotFoundError as problem:
            raise MissingSourceError(source.reference, problem) from problem
        start = source.reference.start - extent.start
        return memoryview(content)[start : start + source.reference.size_bytes]


class RangeReader(Protocol):
    """The way to the sources: an object store, or what keeps objects that several sources lie in."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectReader`."""


class SourceReads:
    """Reads of all merges: at most `at_once` requests of windows, and those of streams, are in flight."""

    def __init__(self, objects: RangeReader, at_once: int) -> None:
        self._objects = objects
        self._slots = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def window(self, sources: Sequence[NamedSource]) -> AsyncGenerator[WindowReads, None]:
        """Begin to read all of them; what is not read at the end of the block is cancelled."""
        slices = [
            Slice(number, source.key, source.reference.start, source.reference.size_bytes)
            for number, source in enumerate(sources)
        ]
        tasks, reads = TaskOwner(), dict[int, tuple[Extent, asyncio.Task[bytes]]]()
        try:
            for extent in extents(slices, PIECE_BYTES):
                task = tasks.spawn(self._read_extent(extent), f"read {extent.key}", is_awaited=True)
                reads.update((one.source, (extent, task)) for one in extent.slices)
            yield WindowReads(sources, reads)
        finally:
            await tasks.close()

    async def _read_extent(self, extent: Extent) -> bytes:
        async with self._slots:
            return await self._objects.get_range(extent.key, extent.start, extent.length)

    async def head(self, source: NamedSource) -> bytes:
        """A source's header. Raises `MissingSourceError`, `StoreError`."""
        try:
            return await self._objects.get_range(source.key, source.reference.start, HEADER_SIZE)
        except ObjectNotFoundError as problem:
            raise MissingSourceError(source.reference, problem) from problem

    async def stream(self, sources: Sequence[NamedSource]) -> AsyncGenerator[Piece, None]:
        """The pieces of the sources in order, some read ahead. Neighbours in an object share requests.

        Raises `MissingSourceError`, `StoreError`.
        """
        async with aclosing(in_order_ahead(self._read, list(_ranges(sources)), _PIECES_AHEAD)) as contents:
            async for held in contents:
                for piece in held:
                    yield piece

    async def _read(self, wanted: "_Range") -> list[Piece]:
        try:
            content = memoryview(await self._objects.get_range(wanted.key, wanted.start, wanted.length))
        except ObjectNotFoundError as problem:
            raise MissingSourceError(wanted.parts[0].source.reference, problem) from problem
        pieces, at = [], 0
        for part in wanted.parts:
            end = part.position + part.length
            is_last = end == part.source.reference.size_bytes
            pieces.append(Piece(part.source, content[at : at + part.length], part.position == 0, is_last))
            at += part.length
        return pieces


@dataclass(frozen=True, slots=True)
class _Part:
    source: NamedSource
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class _Range:
    key: str
    start: int
    length: int
    parts: tuple[_Part, ...]


def _ranges(sources: Sequence[NamedSource]) -> Iterator[_Range]:
    """Ranges of at most `PIECE_BYTES`; only sources that touch, in their order, share one."""
    key, start, length = "", 0, 0
    parts: list[_Part] = []
    for source in sources:
        at = source.reference.start
        if parts and (source.key != key or at != start + length):
            yield _Range(key, start, length, tuple(parts))
            parts = []
        position = 0
        while position < source.reference.size_bytes:
            if not parts:
                key, start, length = source.key, at + position, 0
            part = min(PIECE_BYTES - length, source.reference.size_bytes - position)
            parts.append(_Part(source, position, part))
            length, position = length + part, position + part
            if length == PIECE_BYTES:
                yield _Range(key, start, length, tuple(parts))
                parts = []
    if parts:
        yield _Range(key, start, length, tuple(parts))
