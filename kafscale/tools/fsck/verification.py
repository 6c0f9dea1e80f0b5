"""Reads published segments from their first byte to their last, and their indexes, and reports their faults."""

import asyncio
from collections.abc import Sequence

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.tools.fsck.comparison import Look, has_own_index
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.index_check import BatchTable
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.record_check import may_be_passed_over
from kafscale.tools.recovery.rebuild import PIECE_BYTES

# Checking more than this takes long enough to be felt by what else the event loop does.
_COSTLY_BYTES = 64 * 1024


async def inspect_segment(
    reading: Reading, key: str, reference: SegmentReference
) -> tuple[InspectedSegment, BatchTable]:
    """Read and check all of a segment; what the record says of it is not looked at.

    Read twice before it counts as damaged: it may have been the transfer. Raises `CorruptDataError`,
    `ObjectNotFoundError`, `StoreError`.
    """
    try:
        return await _inspect(reading, key, reference)
    except CorruptDataError:
        return await _inspect(reading, key, reference)


async def _inspect(
    reading: Reading, key: str, reference: SegmentReference
) -> tuple[InspectedSegment, BatchTable]:
    table = BatchTable()
    parsed = object_keys.parse_segment_key(key)
    inspection = SegmentInspection(key, parsed, reference.size_bytes, table.add, lists_batches=False)
    for position in range(0, reference.size_bytes, PIECE_BYTES):
        length = min(PIECE_BYTES, reference.size_bytes - position)
        piece = await reading.get_range(key, reference.start + position, length)
        if len(piece) > _COSTLY_BYTES:
            await asyncio.to_thread(inspection.feed, piece)
        else:
            inspection.feed(piece)
    return inspection.finish(), table


async def verify(reading: Reading, look: Look, reference: SegmentReference) -> Sequence[Finding]:
    """Everything that is wrong with the bytes of a published segment and of its index. Raises `StoreError`."""
    key = look.key_of(reference)
    try:
        segment, table = await inspect_segment(reading, key, reference)
    except ObjectNotFoundError:
        return [_finding(look, reference, FindingKind.SEGMENT_MISSING, key)]
    except CorruptDataError as problem:
        return [_finding(look, reference, FindingKind.SEGMENT_DAMAGED, key, problem.problem)]
    found = []
    difference = _difference(reference, segment)
    if difference:
        found.append(_finding(look, reference, FindingKind.SEGMENT_DIFFERS, key, difference))
    found += _inner_holes(look, key, segment)
    if has_own_index(key, reference):
        index_key = object_keys.index_key_of(key)
        try:
            wrong = table.problem_of(index_key, await reading.get(index_key))
        except ObjectNotFoundError:
            wrong = FindingKind.INDEX_MISSING, ""
        if wrong is not None:
            found.append(_finding(look, reference, wrong[0], index_key, wrong[1]))
    return found


def _difference(reference: SegmentReference, segment: InspectedSegment) -> str:
    """In what a sound segment is not what the record says; empty when it is."""
    holds = (segment.base_offset, segment.last_offset, segment.record_count)
    says = (reference.base_offset, reference.last_offset, reference.record_count)
    if holds != says:
        return (
            f"it holds {holds[2]} records at offsets {holds[0]} to {holds[1]}, "
            f"the record says {says[2]} at {says[0]} to {says[1]}"
        )
    if segment.leader_epoch != reference.leader_epoch and reference.leader_epoch >= 0:
        return f"leader epoch {segment.leader_epoch}, the record says {reference.leader_epoch}"
    if segment.max_timestamp_ms != reference.max_timestamp_ms:
        return (
            f"its largest timestamp is {segment.max_timestamp_ms} ms, "
            f"the record says {reference.max_timestamp_ms}"
        )
    return ""


def _inner_holes(look: Look, key: str, segment: InspectedSegment) -> list[Finding]:
    """Offsets between the batches that none of them holds: skipped before a merge, or lost in it."""
    found = []
    before = segment.spans[0]
    for span in segment.spans[1:]:
        count = span.first_offset - before.last_offset - 1
        if count:
            explained = may_be_passed_over(count, span.leader_epoch - before.leader_epoch)
            found.append(
                Finding(
                    kind=FindingKind.HOLE_PASSED_OVER if explained else FindingKind.HOLE_UNEXPLAINED,
                    subject=look.subject,
                    detail="the leader changed there" if explained else f"{count} offsets inside the segment",
                    key=key,
                    first_offset=before.last_offset + 1,
                    last_offset=span.first_offset - 1,
                )
            )
        before = span
    return found


def _finding(
    look: Look, reference: SegmentReference, kind: FindingKind, key: str, detail: str = ""
) -> Finding:
    return Finding(
        kind=kind,
        subject=look.subject,
        detail=detail,
        key=key,
        first_offset=reference.base_offset,
        last_offset=reference.last_offset,
    )
