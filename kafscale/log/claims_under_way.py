"""The partitions that this broker is claiming, and who waits to know whether it leads them."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kafscale.cluster.leadership import TopicPartition


class ClaimsUnderWay:
    """Partitions by topic and number. The others may know the outcome of a claim before this broker does."""

    def __init__(self) -> None:
        self._under_way: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, asyncio.Event] = {}

    @property
    def are_any(self) -> bool:
        """Whether there are any at all: seldom, so the produce path asks this first."""
        return bool(self._under_way)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._under_way

    def is_waited_for(self, partition: TopicPartition) -> bool:
        """Whether anybody waits for this one."""
        return partition in self._ends

    @contextmanager
    def making(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """For the time in which these are claimed."""
        self._under_way.update(partitions)
        try:
            yield
        finally:
            for partition in partitions:
                self.end(partition)

    def end(self, partition: TopicPartition) -> None:
        """It is known whether this broker leads the partition."""
        self._under_way.discard(partition)
        waited_for = self._ends.pop(partition, None)
        if waited_for is not None:
            waited_for.set()

    async def ended(self, partition: TopicPartition) -> None:
        """Wait until it is known; returns at once where nothing is claimed."""
        if partition in self._under_way:
            await self._ends.setdefault(partition, asyncio.Event()).wait()
