"""The keys of the markers that are to be written, as this broker's watch shows them, by partition."""

from collections.abc import Iterable, Mapping
from typing import Final

from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot

TopicPartition = tuple[str, int]

_NONE: Final[Mapping[int, KeyValue]] = {}


class MarkerKeys:
    """Of each partition: the key of each producer. A key that is handled is forgotten before the watch shows it."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[int, KeyValue]] = {}
        # Keys that were deleted here, with their revisions, until the watch shows it.
        self._handled: dict[str, int] = {}

    def of(self, place: TopicPartition) -> Mapping[int, KeyValue]:
        """The partition's, by producer id."""
        return self._by_partition.get(place, _NONE)

    def get(self, place: TopicPartition, producer_id: int) -> KeyValue | None:
        """The key of the producer's marker in the partition, None if there is none."""
        return self.of(place).get(producer_id)

    def apply(self, event: Snapshot | Changes) -> set[TopicPartition]:
        """Take in what the watch reported; returns the partitions that have a new key."""
        changes: Iterable[KeyValue | Delete]
        if isinstance(event, Snapshot):
            self._by_partition.clear()
            self._handled = {item.key: at for item in event.items if (at := self._handled.get(item.key))}
            changes = event.items
        else:
            changes = event.puts_and_deletes
        places = set()
        for change in changes:
            try:
                topic, index, producer_id = keys.marked_partition(change.key)
            except ValueError:
                continue  # No broker wrote it.
            if isinstance(change, Delete):
                self._handled.pop(change.key, None)
                self._remove((topic, index), producer_id)
            elif self._handled.get(change.key) != change.mod_revision:
                self._by_partition.setdefault((topic, index), {})[producer_id] = change
                places.add((topic, index))
        return places

    def handled(self, place: TopicPartition, producer_id: int, revision: int) -> None:
        """The key as it was at this revision is gone from the metadata store."""
        found = self.get(place, producer_id)
        if found is not None and found.mod_revision == revision:
            self._remove(place, producer_id)
            self._handled[found.key] = revision

    def _remove(self, place: TopicPartition, producer_id: int) -> None:
        of_partition = self._by_partition.get(place)
        if of_partition is not None:
            of_partition.pop(producer_id, None)
            if not of_partition:
                del self._by_partition[place]
