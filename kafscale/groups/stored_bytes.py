"""The size of groups in the metadata store: offsets, records, share groups' partitions, and their totals.

A size is added before it is written and removed after it is deleted, so that the count is never less than what
the store has; a write that failed may leave it larger until the group is loaded again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

TopicPartition = tuple[str, int]

KEY_BYTES: Final = 128
"""The overhead of a key beside itself and its value, roughly: etcd keeps an index of all keys in memory."""


def stored_size(key: str, value: bytes) -> int:
    """The size of a key with its value in the store."""
    return KEY_BYTES + len(key) + len(value)


class StoredTotals:
    """The sizes of all groups of this broker: plain numbers, which another thread may read."""

    __slots__ = ("offset_bytes", "record_bytes", "share_bytes")

    def __init__(self) -> None:
        self.offset_bytes = 0
        self.record_bytes = 0
        self.share_bytes = 0

    @property
    def all_bytes(self) -> int:
        """Offsets, records, and share groups' partitions together."""
        return self.offset_bytes + self.record_bytes + self.share_bytes


class StoredGroup:
    """One group's part: sizes only, 100 bytes or so for each partition.

    `is_complete`: all offsets in the store are counted; otherwise only those committed since the group was loaded.
    `has_shares`: so are the starts and states of a share group.
    """

    __slots__ = (
        "_pending",
        "_removed",
        "_sizes",
        "_totals",
        "has_shares",
        "is_complete",
        "offset_bytes",
        "record_bytes",
        "share_bytes",
    )

    def __init__(self, totals: StoredTotals) -> None:
        self._totals = totals
        self._sizes: dict[str, dict[int, int]] = {}
        self._removed: set[TopicPartition] = set()
        self._pending: dict[int, int] = {}
        self.is_complete = True
        self.has_shares = True
        self.offset_bytes = 0
        self.record_bytes = 0
        self.share_bytes = 0

    def size(self, partition: TopicPartition) -> int | None:
        """The size of the offset; None: the store has none, and none is in flight."""
        topic, index = partition
        return self._sizes.get(topic, {}).get(index)

    def may_have(self, partition: TopicPartition) -> bool:
        """True if the store may have an offset of the partition."""
        return not self.is_complete or self.size(partition) is not None

    def complete(self, sizes: Mapping[TopicPartition, int]) -> None:
        """Add the sizes that were read from the store; writes and deletions here since the read began are newer."""
        if self.is_complete:
            return
        self.put(
            {
                partition: size
                for partition, size in sizes.items()
                if self.size(partition) is None and partition not in self._removed
            }
        )
        self._removed.clear()
        self.is_complete = True

    def growth(self, sizes: Mapping[TopicPartition, int]) -> int:
        """How many bytes these sizes would add."""
        return sum(size - (self.size(partition) or 0) for partition, size in sizes.items())

    def put(self, sizes: Mapping[TopicPartition, int]) -> None:
        """Count offsets that are in the store, or in flight to it."""
        for (topic, index), size in sizes.items():
            of_topic = self._sizes.setdefault(topic, {})
            self._add(size - of_topic.get(index, 0))
            of_topic[index] = size

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop counting these offsets; returns the sizes of those that were counted."""
        removed = {}
        for topic, index in partitions:
            if not self.is_complete:
                self._removed.add((topic, index))
            of_topic = self._sizes.get(topic, {})
            size = of_topic.pop(index, None)
            if size is not None:
                removed[topic, index] = size
                self._add(-size)
                if not of_topic:
                    del self._sizes[topic]
        return removed

    def put_back(self, removed: Mapping[TopicPartition, int]) -> None:
        """Count offsets again whose deletion may have failed, unless a newer one is counted in their place."""
        self._removed.difference_update(removed)
        self.put({partition: size for partition, size in removed.items() if self.size(partition) is None})

    def set_record(self, size: int) -> None:
        """Count this size for the group's record."""
        self._totals.record_bytes += size - self.record_bytes
        self.record_bytes = size

    def set_shares(self, size: int) -> None:
        """Count this size for the starts and states of a share group."""
        self._totals.share_bytes += size - self.share_bytes
        self.share_bytes = size
        self.has_shares = True

    def pending(self, producer_id: int) -> int:
        """The size of the offsets that the producer's transaction has pending."""
        return self._pending.get(producer_id, 0)

    def set_pending(self, producer_id: int, size: int) -> None:
        """Count this size for them; 0: there are none."""
        self._add(size - self._pending.pop(producer_id, 0))
        if size:
            self._pending[producer_id] = size

    def clear(self) -> None:
        """Stop counting the group."""
        self._sizes.clear()
        self._pending.clear()
        self._add(-self.offset_bytes)
        self.set_record(0)
        self.set_shares(0)

    def _add(self, size: int) -> None:
        self.offset_bytes += size
        self._totals.offset_bytes += size
