"""Stores segments made of slices, each with its index: in memory what is small, streamed what is large.

A large one is streamed from memory while all its slices are there, else from the store, checked on the way.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing

from kafscale.errors import ObjectExistsError
from kafscale.formats import object_keys
from kafscale.formats.index import build_index, interval_for
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_header
from kafscale.log.life.combined_slice import CombinedSlice, SliceBody, combine, places_of_batches
from kafscale.log.life.pace import Pace, seal_bytes_per_sec
from kafscale.log.life.segment_merge import KeyTakenError, SegmentMerge
from kafscale.log.life.slice_bodies import SliceBodies
from kafscale.log.life.slice_stream import SliceStream, chunks_of
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer

IN_MEMORY_BYTES = 8 * 1024 * 1024
_COSTLY_BYTES = 16 * 1024


def is_large(sources: Sequence[SegmentReference]) -> bool:
    """True if the segment of these slices is streamed."""
    return sum(one.size_bytes for one in sources) > IN_MEMORY_BYTES


class SliceSegments:
    """`merge` streams the large ones. It publishes nothing."""

    def __init__(
        self,
        objects: ObjectStore,
        merge: SegmentMerge,
        bodies: SliceBodies,
        namespace: str,
        now_ms: Callable[[], int],
        pace: Pace,
    ) -> None:
        """`now_ms`: Unix milliseconds. `pace`: in bytes, of what is streamed from memory."""
        self._objects = objects
        self._merge = merge
        self._bodies = bodies
        self._namespace = namespace
        self._now_ms = now_ms
        self._pace = pace

    async def create(
        self, partition: Partition, sources: Sequence[SegmentReference], index_version: int
    ) -> SegmentReference:
        """Store the segment and its index; returns its reference.

        An earlier attempt may have stored the segment already. Raises `DamagedSourceError`, `MissingSourceError`,
        `KeyTakenError`, `StoreError`.
        """
        if is_large(sources):
            with ExitStack() as until:
                held = self._bodies.held(partition, sources, until)
                if held is not None:
                    return await self._stream(partition, sources, held, index_version)
            return await self._merge.create(partition.id, sources, index_version)
        bodies = await self._bodies.read(partition, sources)
        key = self._key(partition, sources)
        if sum(len(one.batches) for one in bodies) > _COSTLY_BYTES:
            made, index = await asyncio.to_thread(_make, key, bodies, self._now_ms(), index_version)
        else:
            made, index = _make(key, bodies, self._now_ms(), index_version)
        try:
            await self._objects.put_if_absent(key, made.parts)
        except ObjectExistsError:
            await self._check_existing(key, made.reference, made.footer)
        await self._objects.put(object_keys.index_key_of(key), [index])
        return made.reference._replace(object_key=key)

    async def _stream(
        self,
        partition: Partition,
        sources: Sequence[SegmentReference],
        held: Sequence[CachedSegment],
        index_version: int,
    ) -> SegmentReference:
        key = self._key(partition, sources)
        made = SliceStream(key, sources, self._now_ms())
        async with aclosing(self._chunks(made, held)) as chunks:
            try:
                await self._objects.put_if_absent_streamed(key, chunks, made.reference.size_bytes)
            except ObjectExistsError:
                async for _ in chunks:
                    pass  # The bytes are still needed to compare.
                await self._check_existing(key, made.reference, made.footer)
        await self._objects.put(object_keys.index_key_of(key), [made.index(index_version)])
        return made.reference

    async def _chunks(self, made: SliceStream, held: Sequence[CachedSegment]) -> AsyncGenerator[Buffer, None]:
        """The bytes of the segment."""
        yield made.header
        views = (view for one in held for view in one.slices(HEADER_SIZE, one.end))
        for chunk in chunks_of(views):
            await self._pace.spend(len(chunk))
            if len(chunk) > _COSTLY_BYTES:
                await asyncio.to_thread(made.add, chunk)
            else:
                made.add(chunk)
            yield chunk
        yield made.footer

    def _key(self, partition: Partition, sources: Sequence[SegmentReference]) -> str:
        return object_keys.merged_segment_key(
            self._namespace,
            partition.id.topic,
            partition.id.index,
            sources[0].base_offset,
            sources[-1].last_offset,
        )

    async def _check_existing(self, key: str, made: SegmentReference, made_footer: bytes) -> None:
        """Raises `KeyTakenError` unless the object has the same batches: their number, size and checksum."""
        size_bytes = await self._objects.size_bytes(key)
        if size_bytes != made.size_bytes:
            raise KeyTakenError(f"{key} has {size_bytes} bytes, the segment {made.size_bytes}")
        header = parse_header(key, await self._objects.get_range(key, 0, HEADER_SIZE))
        footer = await self._objects.get_range(key, size_bytes - FOOTER_SIZE, FOOTER_SIZE)
        expected = (made.base_offset, made.record_count, made_footer)
        if (header.base_offset, header.message_count, footer) != expected:
            raise KeyTakenError(f"{key} has other batches than the slices that are to be sealed")


class PacedSegments:
    """The same for what is worth a pace: what `segments` streams at `pace`, which follows the debt of sealing."""

    def __init__(self, segments: SliceSegments, pace: Pace, debt_bytes: Callable[[], int]) -> None:
        self._segments = segments
        self._pace = pace
        self._debt_bytes = debt_bytes

    async def create(
        self, partition: Partition, sources: Sequence[SegmentReference], index_version: int
    ) -> SegmentReference:
        """See `SliceSegments`."""
        self._pace.units_per_sec = seal_bytes_per_sec(self._debt_bytes())
        return await self._segments.create(partition, sources, index_version)


def _make(
    key: str, bodies: Sequence[SliceBody], created_ms: int, index_version: int
) -> tuple[CombinedSlice, bytes]:
    made = combine(bodies, created_ms)
    interval = interval_for(made.reference.size_bytes, made.reference.record_count)
    return made, build_index(places_of_batches(key, made.body), interval, version=index_version)
