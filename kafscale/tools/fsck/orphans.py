"""Orphans of a partition, and their reasons. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kafscale.formats import object_keys
from kafscale.formats.object_keys import SegmentKey
from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.objects.object_store import ObjectInfo
from kafscale.tools.fsck.findings import Orphan, OrphanReason, Standing

_OF_STANDING = {
    Standing.NO_TOPIC: OrphanReason.NO_TOPIC,
    Standing.TOPIC_DELETED: OrphanReason.TOPIC_DELETED,
    Standing.NO_PARTITION: OrphanReason.NO_PARTITION,
    Standing.TOPIC_DELETING: OrphanReason.TOPIC_DELETING,
}


def orphans_without_partition(standing: Standing, listed: Iterable[ObjectInfo]) -> tuple[Orphan, ...]:
    """All objects of a partition that is not there."""
    return tuple(_orphan(info, _OF_STANDING[standing]) for info in listed)


class OrphanSearch:
    """The objects of one partition that its record does not refer to.

    `references`: ascending.
    """

    def __init__(
        self,
        namespace: str,
        topic: str,
        partition: int,
        record: PartitionRecord,
        references: Sequence[SegmentReference],
    ) -> None:
        self._record = record
        self._references = references
        self._bases = [reference.base_offset for reference in references]
        self._keys = [
            object_keys.key_of_reference(namespace, topic, partition, reference) for reference in references
        ]
        self._referred = frozenset(self._keys)

    def unreferenced(self, listed: Iterable[ObjectInfo]) -> list[ObjectInfo]:
        """Those of the listed segments and indexes that no reference is about."""
        return [info for info in listed if _segment_key(info.key) not in self._referred]

    def explain(
        self, unreferenced: Sequence[ObjectInfo], unexplained: Sequence[tuple[int, int]]
    ) -> Iterator[Orphan]:
        """Each of them with its reason. `unexplained`: first and last offsets of holes that nothing explains."""
        segments = {info.key for info in unreferenced}
        for info in unreferenced:
            parsed = object_keys.parse_segment_key(info.key) or object_keys.parse_index_key(info.key)
            assert parsed is not None
            reason, because = self._reason(parsed, unexplained)
            if _segment_key(info.key) not in segments and reason is not OrphanReason.ABOVE_LOG_END:
                reason, because = OrphanReason.INDEX_WITHOUT_SEGMENT, ""
            yield _orphan(info, reason, because)

    def _reason(self, parsed: SegmentKey, unexplained: Sequence[tuple[int, int]]) -> tuple[OrphanReason, str]:
        first = parsed.base_offset
        last = first if parsed.last_offset is None else parsed.last_offset
        if last >= self._record.log_end_offset:
            return OrphanReason.ABOVE_LOG_END, ""
        # The last offset of a flushed segment is known only when it is read; below the log's start lies its base.
        if last < self._record.log_start_offset:
            return OrphanReason.EXPIRED, ""
        place = bisect_right(self._bases, first) - 1
        published = self._references[place] if place >= 0 else None
        published_key = self._keys[place] if place >= 0 else ""
        if published is None or published.last_offset < first:
            if parsed.last_offset is not None:
                return OrphanReason.UNPUBLISHED_MERGE, ""
            left_out = any(start <= first <= end for start, end in unexplained)
            return (OrphanReason.LEFT_OUT if left_out else OrphanReason.LEFTOVER), ""
        is_merged = _is_merged(published_key)
        if parsed.last_offset is None:
            return (OrphanReason.SUPERSEDED if is_merged else OrphanReason.LEFTOVER), published_key
        if is_merged and last <= published.last_offset:
            return OrphanReason.SUPERSEDED, published_key
        return OrphanReason.UNPUBLISHED_MERGE, ""


def checkpoint_orphans(record: PartitionRecord, listed: Iterable[ObjectInfo]) -> Iterator[Orphan]:
    """The partition's checkpoints that its record does not name."""
    for info in listed:
        parsed = object_keys.parse_checkpoint_key(info.key)
        if parsed is None or info.key == record.checkpoint_key:
            continue
        is_old = parsed.log_end_offset < record.checkpoint_end_offset
        yield _orphan(info, OrphanReason.OLD_CHECKPOINT if is_old else OrphanReason.UNNAMED_CHECKPOINT)


def _orphan(info: ObjectInfo, reason: OrphanReason, because: str = "") -> Orphan:
    return Orphan(
        key=info.key,
        size_bytes=info.size_bytes,
        modified_ms=info.modified_ms,
        reason=reason,
        because=because,
    )


def _segment_key(key: str) -> str:
    return object_keys.segment_key_of(key) if key.endswith(".index") else key


def _is_merged(key: str) -> bool:
    parsed = object_keys.parse_segment_key(key)
    return parsed is not None and parsed.last_offset is not None
