"""Writes the object of a merged segment: checks its sources as they are read, and forwards their batches."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from kafscale.errors import CorruptDataError, ObjectExistsError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_header
from kafscale.log.life.merge_pressure import MergePressure
from kafscale.log.life.merged_segment import MergedSegment
from kafscale.log.life.pace import Pace
from kafscale.log.life.source_reads import NamedSource, Piece, SourceReads, WindowReads
from kafscale.log.partition import PartitionId
from kafscale.log.reading.segment_inspection import SegmentInspection
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer

# Checking more than this takes long enough to be felt on the event loop.
_COSTLY_BYTES = 16 * 1024


class KeyTakenError(Exception):
    """Another object has the key of a merged segment: one of an older topic of the name, for example."""


class DamagedSourceError(Exception):
    """A source does not agree with the record. It stays as it is; `source` names it."""

    def __init__(self, source: SegmentReference, problem: CorruptDataError) -> None:
        super().__init__(str(problem))
        self.source = source


class MergePaces:
    """The paces that all merges share: bytes per second, and the share of one core that their steps take.

    `cpu_sec`: the CPU time of the event loop's thread. A step is timed, and paid for by waiting, so that clients
    have the event loop in between, however many merges there are. `pressure` gets the time of a write of each merge.
    """

    def __init__(
        self, by_bytes: Pace, cpu_share: float, cpu_sec: Callable[[], float], pressure: MergePressure
    ) -> None:
        self.bytes = by_bytes
        self.cpu = Pace(cpu_share)
        self.cpu_sec = cpu_sec
        self.pressure = pressure


class SegmentMerge:
    """Merges segments of any partition, at a pace. It publishes nothing."""

    def __init__(self, objects: ObjectStore, reads: SourceReads, namespace: str, paces: MergePaces) -> None:
        self._objects = objects
        self._reads = reads
        self._namespace = namespace
        self._paces = paces

    def named(self, partition: PartitionId, sources: Sequence[SegmentReference]) -> list[NamedSource]:
        """The sources with the keys of their objects."""
        return [
            NamedSource(
                source,
                object_keys.key_of_reference(self._namespace, partition.topic, partition.index, source),
            )
            for source in sources
        ]

    async def create(
        self,
        partition: PartitionId,
        sources: Sequence[SegmentReference],
        index_version: int,
        window: WindowReads | None = None,
        first: int = 0,
    ) -> SegmentReference:
        """Store the merged segment and its index; returns its reference.

        The sources are those of the window from number `first` on; without a window they are streamed. An earlier
        attempt may have stored the segment already. Raises `DamagedSourceError`, `MissingSourceError`,
        `KeyTakenError`, `IndexPositionError`, `StoreError`.
        """
        named = self.named(partition, sources)
        key = object_keys.merged_segment_key(
            self._namespace, partition.topic, partition.index, sources[0].base_offset, sources[-1].last_offset
        )
        if window is None:
            newest: Buffer = await self._reads.head(named[-1])
            pieces = self._reads.stream(named)
        else:
            await self._paces.bytes.spend(sum(source.size_bytes for source in sources))
            newest = (await window.content(first + len(sources) - 1))[:HEADER_SIZE]
            pieces = _of_window(window, named, first)
        try:
            merged = MergedSegment(sources, parse_header(named[-1].key, bytes(newest)))
        except CorruptDataError as problem:
            raise DamagedSourceError(sources[-1], problem) from problem
        async with aclosing(pieces), aclosing(self._chunks(merged, pieces, window is None)) as chunks:
            try:
                await self._objects.put_if_absent_streamed(key, chunks, merged.size_bytes)
            except ObjectExistsError:
                async for _ in chunks:
                    pass  # The bytes are still needed to compare.
                await self._check_existing(key, merged)
        began_sec = asyncio.get_running_loop().time()
        await self._objects.put(object_keys.index_key_of(key), [merged.index(index_version)])
        self._paces.pressure.observe(asyncio.get_running_loop().time() - began_sec)
        return merged.reference(key)

    async def _chunks(
        self, merged: MergedSegment, pieces: AsyncGenerator[Piece, None], is_streamed: bool
    ) -> AsyncGenerator[Buffer, None]:
        """The bytes of the merged segment. Raises `DamagedSourceError`, `MissingSourceError`, `StoreError`."""
        yield merged.header
        async for piece in pieces:
            if is_streamed:
                await self._paces.bytes.spend(len(piece.content))
            try:
                views = await self._fed(merged, piece)
            except CorruptDataError as problem:
                raise DamagedSourceError(piece.source.reference, problem) from problem
            for view in views:
                yield view
        yield merged.footer

    async def _fed(self, merged: MergedSegment, piece: Piece) -> list[memoryview]:
        if len(piece.content) > _COSTLY_BYTES:
            return await asyncio.to_thread(_feed, merged, piece)
        began_sec = self._paces.cpu_sec()
        try:
            return _feed(merged, piece)
        finally:
            await self._paces.cpu.spend(self._paces.cpu_sec() - began_sec)

    async def _check_existing(self, key: str, merged: MergedSegment) -> None:
        """Raises `KeyTakenError` unless the object under the key equals the merged segment."""
        size_bytes = await self._objects.size_bytes(key)
        if size_bytes != merged.size_bytes:
            raise KeyTakenError(f"{key} has {size_bytes} bytes, the merged segment {merged.size_bytes}")
        whole = merged.reference(key)
        ends = [(0, HEADER_SIZE), (size_bytes - FOOTER_SIZE, FOOTER_SIZE)]
        head, footer = [await self._objects.get_range(key, start, length) for start, length in ends]
        try:
            found = parse_header(key, head)
        except CorruptDataError as problem:
            raise KeyTakenError(str(problem)) from problem
        # Not the whole header: what was sealed from memory has another codec and time in it.
        if (found.base_offset, found.message_count, footer) != (
            whole.base_offset,
            merged.record_count,
            merged.footer,
        ):
            raise KeyTakenError(f"{key} has other batches than the segments that are to be merged")
        parsed = object_keys.parse_segment_key(key)
        assert parsed is not None
        inspection = SegmentInspection(key, parsed, size_bytes, lists_batches=False)
        try:
            async with aclosing(self._reads.stream([NamedSource(whole, key)])) as pieces:
                async for piece in pieces:
                    await self._paces.bytes.spend(len(piece.content))
                    if len(piece.content) > _COSTLY_BYTES:
                        await asyncio.to_thread(inspection.feed, piece.content)
                    else:
                        inspection.feed(piece.content)
            inspection.finish()
        except CorruptDataError as problem:
            raise KeyTakenError(str(problem)) from problem


async def _of_window(
    window: WindowReads, sources: Sequence[NamedSource], first: int
) -> AsyncGenerator[Piece, None]:
    for number, source in enumerate(sources):
        yield Piece(source, await window.content(first + number))


def _feed(merged: MergedSegment, piece: Piece) -> list[memoryview]:
    """The next bytes of the merged segment. Raises `CorruptDataError`."""
    if piece.is_first:
        merged.begin(piece.source.key, piece.source.reference)
    views = merged.feed(piece.content)
    if piece.is_last:
        merged.end()
    return views
