"""Which objects of a partition nothing can ever refer to. Pure; the driver is garbage_collector.py.

What is garbage must stay garbage, whatever leaders do next: the one who removes it may have been replaced by then
without knowing. A segment as it was flushed is published under the log end offset or a little above it. So one
strictly below that can only be referred to already, or never again. A merged segment is put in the place of
segments that lie side by side, and it begins and ends where they do; references only ever leave at the front, are
appended, or become fewer and larger. So one that begins or ends where no reference does never will be referred to.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.formats import object_keys
from kafscale.formats.object_keys import SegmentKey, parse_index_key, parse_segment_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.objects.object_store import ObjectInfo


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment or an index that is garbage unless it is referred to, or may be one day."""

    object_key: str
    parsed: SegmentKey


def candidates(listed: Iterable[ObjectInfo], log_end_offset: int, before_ms: int) -> list[Candidate]:
    """What of the listed objects may be garbage: wholly below the published log end offset, and old.

    Objects changed since `before_ms` are left for readers that know an older record.
    """
    found = []
    for info in listed:
        key = parse_segment_key(info.key) or parse_index_key(info.key)
        if key is None:
            continue
        highest_offset = key.base_offset if key.last_offset is None else key.last_offset
        if highest_offset < log_end_offset and info.modified_ms < before_ms:
            found.append(Candidate(info.key, key))
    return found


def garbage(found: Iterable[Candidate], references: Iterable[SegmentReference]) -> list[str]:
    """Those of the candidates that no reference is about, nor ever will be."""
    named = tuple(references)
    starts = {reference.base_offset for reference in named}
    ends = {reference.last_offset for reference in named}
    flushed = {reference.base_offset for reference in named if not reference.object_key}
    referred = {reference.object_key for reference in named if reference.object_key}
    unwanted = []
    for candidate in found:
        key = candidate.parsed
        if _segment_key(candidate.object_key) in referred:
            continue
        if key.last_offset is None:
            wanted = key.base_offset in flushed
        else:
            wanted = key.base_offset in starts and key.last_offset in ends
        if not wanted:
            unwanted.append(candidate.object_key)
    return unwanted


def _segment_key(key: str) -> str:
    return object_keys.segment_key_of(key) if key.endswith(".index") else key
