"""The batches of one segment, checked against its checksums and its reference before anything is made of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.formats.object_keys import parse_segment_key
from kafscale.log.life.pace import Pace
from kafscale.log.life.segment_merge import DamagedSourceError
from kafscale.log.life.source_reads import NamedSource, SourceReads
from kafscale.log.reading.segment_inspection import SegmentInspection, check_reference

COSTLY_BYTES: Final = 16 * 1024
"""A walk over the batches of more than this takes long enough to be felt on the event loop."""


async def checked_batches(
    reads: SourceReads, source: NamedSource, pace: Pace
) -> AsyncGenerator[list[memoryview], None]:
    """The batches in order, whole ones, some at a time; `pace` is in bytes.

    What was yielded must not be used if it raises in the end: only the end of a segment vouches for its offsets.
    Raises `DamagedSourceError`, `MissingSourceError`, `StoreError`.
    """
    reference = source.reference
    try:
        inspection = SegmentInspection(
            source.key, parse_segment_key(source.key), reference.size_bytes, lists_batches=False
        )
        async with aclosing(reads.stream([source])) as pieces:
            async for piece in pieces:
                await pace.spend(len(piece.content))
                if len(piece.content) > COSTLY_BYTES:
                    views = await asyncio.to_thread(inspection.feed, piece.content)
                else:
                    views = inspection.feed(piece.content)
                if views:
                    yield views
        check_reference(source.key, inspection.finish(), reference)
    except CorruptDataError as problem:
        raise DamagedSourceError(reference, problem) from problem
