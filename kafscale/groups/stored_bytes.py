"""What groups take in the metadata store: each committed offset, each group's record, and what they add up to.

A size is counted before it is written and given back after it is deleted, so the count is never less than what
the store holds; a write that failed may leave it larger until the group is loaded again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

TopicPartition = tuple[str, int]

KEY_BYTES: Final = 128
"""What a key takes beside itself and its value, roughly: etcd keeps an index of all keys in memory."""


def stored_size(key: str, value: bytes) -> int:
    """What the key takes."""
    return KEY_BYTES + len(key) + len(value)


class StoredTotals:
    """All groups of this broker: plain numbers, which another thread may read."""

    __slots__ = ("offset_bytes", "record_bytes")

    def __init__(self) -> None:
        self.offset_bytes = 0
        self.record_bytes = 0

    @property
    def all_bytes(self) -> int:
        """Offsets and records."""
        return self.offset_bytes + self.record_bytes


class StoredGroup:
    """One group's part: sizes only, 100 bytes or so for each partition.

    `is_complete`: it knows of all that the store has. Without that it counts what came since.
    """

    __slots__ = ("_sizes", "_taken", "_totals", "is_complete", "offset_bytes", "record_bytes")

    def __init__(self, totals: StoredTotals) -> None:
        self._totals = totals
        self._sizes: dict[str, dict[int, int]] = {}
        self._taken: set[TopicPartition] = set()
        self.is_complete = True
        self.offset_bytes = 0
        self.record_bytes = 0

    def size(self, partition: TopicPartition) -> int | None:
        """What the offset takes; None: the store has none, and none is on its way there."""
        topic, index = partition
        return self._sizes.get(topic, {}).get(index)

    def may_hold(self, partition: TopicPartition) -> bool:
        """Whether the store may have an offset there."""
        return not self.is_complete or self.size(partition) is not None

    def complete(self, sizes: Mapping[TopicPartition, int]) -> None:
        """The store had these when it was read; what was written or deleted here since then began is newer."""
        if self.is_complete:
            return
        self.put(
            {
                partition: size
                for partition, size in sizes.items()
                if self.size(partition) is None and partition not in self._taken
            }
        )
        self._taken.clear()
        self.is_complete = True

    def growth(self, sizes: Mapping[TopicPartition, int]) -> int:
        """By how much these would make it larger."""
        return sum(size - (self.size(partition) or 0) for partition, size in sizes.items())

    def put(self, sizes: Mapping[TopicPartition, int]) -> None:
        """These are on their way to the store, or there."""
        for (topic, index), size in sizes.items():
            of_topic = self._sizes.setdefault(topic, {})
            self._add(size - of_topic.get(index, 0))
            of_topic[index] = size

    def take(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Count these no longer; returns what they were, those that were counted."""
        taken = {}
        for topic, index in partitions:
            if not self.is_complete:
                self._taken.add((topic, index))
            of_topic = self._sizes.get(topic, {})
            size = of_topic.pop(index, None)
            if size is not None:
                taken[topic, index] = size
                self._add(-size)
                if not of_topic:
                    del self._sizes[topic]
        return taken

    def give_back(self, taken: Mapping[TopicPartition, int]) -> None:
        """They may be there yet: count them again, unless something newer is counted in their place."""
        self._taken.difference_update(taken)
        self.put({partition: size for partition, size in taken.items() if self.size(partition) is None})

    def set_record(self, size: int) -> None:
        """The record takes this."""
        self._totals.record_bytes += size - self.record_bytes
        self.record_bytes = size

    def clear(self) -> None:
        """Count nothing of the group."""
        self._sizes.clear()
        self._add(-self.offset_bytes)
        self.set_record(0)

    def _add(self, size: int) -> None:
        self.offset_bytes += size
        self._totals.offset_bytes += size
