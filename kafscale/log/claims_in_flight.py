"""The partitions that this broker is claiming, and the requests that wait for the outcome."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kafscale.cluster.leadership import TopicPartition
from kafscale.log.leadership.events import Act, Event
from kafscale.log.leadership.machine import PartitionLeadership


class ClaimsInFlight:
    """Partitions by topic and number. Other brokers may know the outcome of a claim before this one does."""

    def __init__(self) -> None:
        self._claims: dict[TopicPartition, PartitionLeadership] = {}
        # Of all that are being made, those whose outcome is known included.
        self._terms: dict[TopicPartition, PartitionLeadership] = {}
        self._ends: dict[TopicPartition, asyncio.Event] = {}

    @property
    def are_any(self) -> bool:
        """True if there are any at all: seldom, so the produce path asks this first."""
        return bool(self._claims)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._claims

    def is_waited_for(self, partition: TopicPartition) -> bool:
        """True if a request waits for this one."""
        return partition in self._ends

    @contextmanager
    def making(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """For the time in which these are claimed. Those of which no election is known by its end are not led."""
        claims = {partition: PartitionLeadership() for partition in partitions}
        self._claims.update(claims)
        self._terms.update(claims)
        try:
            yield
        finally:
            for partition, claim in claims.items():
                if self._terms.get(partition) is claim:
                    del self._terms[partition]
                claim.apply(Event.NOT_ELECTED)
                # Also if it was elected, and a defect kept an effect of that from being carried out.
                if self._claims.get(partition) is claim:
                    self.end(partition)

    def leadership(self, partition: TopicPartition) -> PartitionLeadership:
        """The leadership that begins with the claim; a new one where none is being made.

        It is closed if the topic was deleted meanwhile: the record that the claim wrote may be that topic's, although
        one of its name is there again.
        """
        return self._terms.get(partition) or PartitionLeadership()

    def delete_topic(self, topic: str) -> None:
        """The topic is deleted: the claims of its partitions lead to nothing."""
        for partition in [claimed for claimed in self._claims if claimed[0] == topic]:
            if Act.END_CLAIM in self._claims[partition].apply(Event.TOPIC_DELETED):
                self.end(partition)

    def end(self, partition: TopicPartition) -> None:
        """Notify the requests that wait: the outcome of the claim is known."""
        self._claims.pop(partition, None)
        waited_for = self._ends.pop(partition, None)
        if waited_for is not None:
            waited_for.set()

    async def ended(self, partition: TopicPartition) -> None:
        """Wait until the outcome is known; returns at once where nothing is claimed."""
        if partition in self._claims:
            await self._ends.setdefault(partition, asyncio.Event()).wait()
