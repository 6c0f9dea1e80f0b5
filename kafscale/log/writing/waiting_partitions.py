"""The partitions with records that wait for a flush, those that waited longest first, and how much waits in all."""

from collections.abc import Iterator

from kafscale.log.partition import Partition


class WaitingPartitions:
    """Each partition with the bytes and the batches that were counted for it last, and their sums."""

    __slots__ = ("_counted", "batches", "size_bytes")

    def __init__(self) -> None:
        self._counted: dict[Partition, tuple[int, int]] = {}
        self.size_bytes = 0
        self.batches = 0

    def count(self, partition: Partition, size_bytes: int, batches: int) -> bool:
        """So much waits of this partition now. True if it waited already; then it keeps its place."""
        counted = self._counted.get(partition)
        counted_bytes, counted_batches = counted or (0, 0)
        self.size_bytes += size_bytes - counted_bytes
        self.batches += batches - counted_batches
        self._counted[partition] = (size_bytes, batches)
        return counted is not None

    def forget(self, partition: Partition) -> None:
        """It waits no more. No error if it did not."""
        counted_bytes, counted_batches = self._counted.pop(partition, (0, 0))
        self.size_bytes -= counted_bytes
        self.batches -= counted_batches

    @property
    def first(self) -> Partition:
        """The one that waited longest. One must wait."""
        return next(iter(self._counted))

    def with_bytes(self) -> list[tuple[Partition, int]]:
        """As they are now, each with its counted bytes."""
        return [(partition, size_bytes) for partition, (size_bytes, _) in self._counted.items()]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._counted)

    def __contains__(self, partition: object) -> bool:
        return partition in self._counted

    def __len__(self) -> int:
        return len(self._counted)
