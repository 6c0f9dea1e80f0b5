"""The partitions that a journal is read for, found by what names a slice: its topic's id and its partition."""

import uuid
from collections.abc import Iterator, Sequence

from kafscale.formats.journal_entry import EntrySlice
from kafscale.log.partition import Partition

_Name = tuple[uuid.UUID, int]


class Followers:
    """A set of partitions. Of most slices of an entry it has none."""

    def __init__(self) -> None:
        self._names: dict[Partition, _Name] = {}
        self._by_name: dict[_Name, tuple[Partition, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._names)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._names

    def add(self, partition: Partition, topic_id: uuid.UUID) -> None:
        """Add a partition of the topic with this id."""
        name = self._names[partition] = topic_id, partition.id.index
        self._by_name[name] = (*self._by_name.get(name, ()), partition)

    def remove(self, partition: Partition) -> None:
        """No error if it is not there."""
        name = self._names.pop(partition, None)
        if name is not None:
            left = tuple(one for one in self._by_name.pop(name) if one is not partition)
            if left:
                self._by_name[name] = left

    def take_all(self, others: "Followers") -> None:
        """Move all partitions of the others here."""
        for partition, (topic_id, _) in tuple(others._names.items()):
            others.remove(partition)
            self.add(partition, topic_id)

    def of(self, one: EntrySlice) -> Sequence[Partition]:
        """Those that the slice is of."""
        return self._by_name.get((one.topic_id, one.partition), ())
