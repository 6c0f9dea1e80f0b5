"""Decides when a partition's slices are gathered or sealed. Pure; driven by sealer.py.

A segment costs two PUTs and holds one partition's records, an entry of a journal one PUT for all partitions. So few
bytes wait: those of many partitions are gathered into one object, where each has one larger slice, until they make
a worthwhile segment or are old. Meanwhile each slice is a reference in the partition's record, which stays small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafscale.formats.index import MAX_RELATIVE_OFFSET
from kafscale.formats.journal_keys import is_entry_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import MAX_MESSAGE_COUNT

MOST_GATHERED = 256
"""Gathered slices of a partition from which on they are sealed however small they are."""
GATHER_FROM = 2
"""Slices of a partition in entries: a single one would only be copied."""
MOST_SOURCES = 2048
MOST_BYTES = 256 * 1024 * 1024
"""Of one segment, which bounds what a crash in the middle wastes. As much as merging makes by default: a busy
partition's segments are not written again."""


class SealStep(Enum):
    """The next step for the slices of a plan."""

    WAIT = "nothing yet"
    GATHER = "combine them in an object of many partitions"
    SEAL = "make a segment of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealLimits:
    """`worthwhile_bytes`: so much is sealed at once. `max_age_ms`: what waits longer is sealed, however little."""

    worthwhile_bytes: int
    max_age_ms: int


@dataclass(frozen=True, slots=True)
class SealPlan:
    """`sources`: neighbours, the oldest first; none to wait."""

    step: SealStep
    sources: tuple[SegmentReference, ...] = ()


def plan_seal(slices: Sequence[SegmentReference], waiting_ms: int, limits: SealLimits) -> SealPlan:
    """The next step for a partition. `slices`: all that are not sealed. `waiting_ms`: for how long the oldest is."""
    size_bytes = sum(one.size_bytes for one in slices)
    in_entries = tuple(one for one in slices if is_entry_key(one.object_key))
    if (
        size_bytes >= limits.worthwhile_bytes
        or len(slices) - len(in_entries) >= MOST_GATHERED
        or (slices and waiting_ms >= limits.max_age_ms)
    ):
        return SealPlan(SealStep.SEAL, sources_of_segment(slices))
    if len(in_entries) >= GATHER_FROM:
        return SealPlan(SealStep.GATHER, in_entries)
    return SealPlan(SealStep.WAIT)


def sources_of_segment(slices: Sequence[SegmentReference]) -> tuple[SegmentReference, ...]:
    """As many of the oldest slices as one segment takes."""
    taken: list[SegmentReference] = []
    taken_bytes = records = 0
    for one in slices[:MOST_SOURCES]:
        if taken and (
            taken_bytes + one.size_bytes > MOST_BYTES
            or records + one.record_count > MAX_MESSAGE_COUNT
            or one.last_offset - taken[0].base_offset > MAX_RELATIVE_OFFSET
        ):
            break
        taken.append(one)
        taken_bytes += one.size_bytes
        records += one.record_count
    return tuple(taken)
