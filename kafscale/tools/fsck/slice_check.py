"""Reads the slices of an entry or of a gathered object, and compares them with their rows in its directory."""

import asyncio
from collections.abc import AsyncIterator, Collection

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.journal_entry import EntryHead, EntrySlice, ProducerBatches
from kafscale.formats.segment import FOOTER_SIZE, parse_footer
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.protocol.record_batch import BatchHeader
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.reading import Reading

_AT_ONCE_BYTES = 32 * 1024 * 1024
"""An object up to this size is read in one piece; of a larger one each slice alone."""


async def check_slices(
    reading: Reading, key: str, head: EntryHead, head_bytes: int, size_bytes: int, topics: Collection[str]
) -> list[Finding]:
    """Findings about the slices of `topics`, or of all. Objects that are gone by now have none.

    Raises `StoreError`.
    """
    rows = [row for row in head.slices if not row.object_key and (not topics or row.topic in topics)]
    if not rows:
        return []
    found: list[Finding] = []
    try:
        async for row, data in _slices(reading, key, rows, head_bytes, size_bytes):
            finding = await asyncio.to_thread(_problem, key, row, data)
            if finding is not None:
                found.append(finding)
    except ObjectNotFoundError:
        return []
    return found


async def _slices(
    reading: Reading, key: str, rows: list[EntrySlice], head_bytes: int, size_bytes: int
) -> AsyncIterator[tuple[EntrySlice, memoryview]]:
    if size_bytes <= _AT_ONCE_BYTES:
        whole = memoryview(await reading.get(key))
        for row in rows:
            start = head_bytes + row.start
            yield row, whole[start : start + row.size_bytes]
        return
    for row in rows:
        yield row, memoryview(await reading.get_range(key, head_bytes + row.start, row.size_bytes))


def _problem(key: str, row: EntrySlice, data: memoryview) -> Finding | None:
    producers: ProducerBatches = []

    def visit(position: int, header: BatchHeader) -> None:
        kind = kind_of_batch(header, data[position : position + header.size_bytes])
        if header.producer_id >= 0 and (header.base_sequence >= 0 or kind.is_marker):
            producers.append(
                (
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    kind,
                )
            )

    inspection = SegmentInspection(key, None, row.size_bytes, visit, lists_batches=False)
    try:
        inspection.feed(data)
        segment = inspection.finish()
        body_crc = parse_footer(key, data[len(data) - FOOTER_SIZE :]).body_crc
    except CorruptDataError as problem:
        return _finding(FindingKind.SLICE_DAMAGED, key, row, problem.problem)
    difference = difference_of(row, segment, body_crc, producers)
    return _finding(FindingKind.SLICE_DIFFERS, key, row, difference) if difference else None


def difference_of(
    row: EntrySlice, segment: InspectedSegment, body_crc: int, producers: ProducerBatches
) -> str:
    """In what a sound slice is not what its row says; empty when it is. Gathered slices' rows name no producers."""
    says = [
        ("offset", segment.base_offset, row.base_offset),
        ("last offset", segment.last_offset, row.last_offset),
        ("records", segment.record_count, row.record_count),
        ("leader epoch", segment.leader_epoch, row.leader_epoch),
        ("largest timestamp", segment.max_timestamp_ms, row.max_timestamp_ms),
        ("CRC of the body", body_crc, row.body_crc),
    ]
    wrong = [
        f"{name} {in_slice}, its row says {in_row}" for name, in_slice, in_row in says if in_slice != in_row
    ]
    named = row.producer_batches
    if named and named != producers:
        wrong.append(f"{len(producers)} batches of idempotent producers, its row says {len(named)} or others")
    return "; ".join(wrong)


def _finding(kind: FindingKind, key: str, row: EntrySlice, detail: str) -> Finding:
    return Finding(
        kind=kind,
        subject=f"{row.topic}-{row.partition}",
        detail=detail,
        key=key,
        first_offset=row.base_offset,
        last_offset=row.last_offset,
    )
