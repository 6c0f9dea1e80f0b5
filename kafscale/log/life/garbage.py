"""Finds the orphans of a partition: objects that no record can refer to. Pure; driven by garbage_collector.py.

An orphan must stay one, whatever leaders do next: the broker that deletes it may have been fenced meanwhile, and
not know it. A segment without a last offset in its key is of a release that wrote one for each flush, at the log end
offset or a little above it. So one that lies wholly below that offset is referred to now or never. A segment of
slices and a merged one replace neighbours, and begin and end where these do; references are only removed at the
front, appended, or replaced by one for several. So one that begins or ends where no reference does will never be
referred to.

A compacted segment takes the place of others, too, but a new attempt has a new key, so places say nothing of it. Its
key has the leader epoch of its maker, which publishes it under that epoch or never. So for a leader of a later epoch,
one that is not referred to never will be; of the leader's own, those that it is not about to publish. And what lies
under a compacted segment is not merged any more: whatever else is there was replaced, or never published.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.formats import object_keys
from kafscale.formats.object_keys import SegmentKey, parse_index_key, parse_segment_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.references import SegmentReferences
from kafscale.objects.object_store import ObjectInfo


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment or an index that is an orphan unless a reference names it, or may name it one day."""

    object_key: str
    parsed: SegmentKey


def candidates(listed: Iterable[ObjectInfo], log_end_offset: int, before_ms: int) -> list[Candidate]:
    """The listed objects that may be orphans: wholly below the published log end offset, and old.

    Objects changed since `before_ms` stay for readers that know an older record.
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


def garbage(
    found: Iterable[Candidate], references: Iterable[SegmentReference], leader_epoch: int
) -> list[str]:
    """The keys of the candidates that no reference names, now or later.

    `leader_epoch`: up to this one, leaders publish no compacted segment any more but those that the caller knows of.
    """
    named = tuple(references)
    compacted = SegmentReferences(one for one in named if object_keys.compaction_of(one) is not None)
    starts = {reference.base_offset for reference in named}
    ends = {reference.last_offset for reference in named}
    flushed = {reference.base_offset for reference in named if not reference.object_key}
    referred = {reference.object_key for reference in named if reference.object_key}
    unwanted = []
    for candidate in found:
        key = candidate.parsed
        if _segment_key(candidate.object_key) in referred:
            continue
        if key.compaction is not None:
            wanted = key.compaction.leader_epoch > leader_epoch
        elif _lies_in(compacted, key):
            wanted = False
        elif key.last_offset is None:
            wanted = key.base_offset in flushed
        else:
            wanted = key.base_offset in starts and key.last_offset in ends
        if not wanted:
            unwanted.append(candidate.object_key)
    return unwanted


def _lies_in(compacted: SegmentReferences, key: SegmentKey) -> bool:
    """True if one of the segments has any of the offsets that the key names."""
    last_offset = key.base_offset if key.last_offset is None else key.last_offset
    first = next(compacted.from_offset(key.base_offset), None)
    return first is not None and first.base_offset <= last_offset


def _segment_key(key: str) -> str:
    return object_keys.segment_key_of(key) if key.endswith(".index") else key
