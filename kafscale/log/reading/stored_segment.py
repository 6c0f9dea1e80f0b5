"""One published segment for its readers: its object, and what the partition's record says of it."""

from dataclasses import dataclass

from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment_check import Expected
from kafscale.log.partition import Partition

SegmentKey = tuple[int, int, str]
"""A partition's number, a segment's base offset, and the key that its reference names: a merged segment begins where
its first source did, and a compacted one may have all of another one's offsets."""

CacheKey = tuple[int, int, str] | tuple[int, int, str, int]
"""The key of a segment, and for a chunk of it the position where that starts."""


def segment_key(partition: Partition, reference: SegmentReference) -> SegmentKey:
    """The key of a segment in the caches."""
    return partition.number, reference.base_offset, reference.object_key


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """`key` is the key in the caches, `expected.name` that of the object."""

    key: SegmentKey
    expected: Expected

    @property
    def reference(self) -> SegmentReference:
        return self.expected.reference

    @property
    def object_key(self) -> str:
        return self.expected.name

    @property
    def has_index(self) -> bool:
        """False for a slice of a journal's entry."""
        return object_keys.has_index(self.expected.name)

    @property
    def index_key(self) -> str:
        return object_keys.index_key_of(self.expected.name)


def stored_segment(namespace: str, partition: Partition, reference: SegmentReference) -> StoredSegment:
    """The segment, by the partition's record as it is now."""
    topic, index = partition.id.topic, partition.id.index
    key = object_keys.key_of_reference(namespace, topic, index, reference)
    expected = Expected(key, reference, partition.record, partition.compares_epochs)
    return StoredSegment(segment_key(partition, reference), expected)
