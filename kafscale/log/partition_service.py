"""The partitions that this broker leads, from its start to its stop, behind one class for the composition root."""

import asyncio
from collections.abc import Callable

from kafscale.cluster.assignment import PartitionAssignment
from kafscale.cluster.keeper import Keeper
from kafscale.cluster.leadership import Journals, Leadership
from kafscale.cluster.view import ClusterView
from kafscale.log.manager import LogManager
from kafscale.log.partition_moves import PartitionMoves
from kafscale.metadata.model import LeaderRecord, TopicRecord
from kafscale.metadata.store import MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures


class PartitionService:
    """Keeps what this broker leads equal to what it should lead. `lease` returns the broker's lease."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        lease: Callable[[], int],
        logs: LogManager,
        broker_id: int,
        journals: Journals,
    ) -> None:
        self._logs = logs
        counts = logs.metrics.background_failures
        leadership = Leadership(
            store, broker_id, lease, journals, failures=ItemFailures(BackgroundWork.CLAIMS, counts)
        )
        failures = ItemFailures(BackgroundWork.KEEPING, counts)
        self._assignment = PartitionAssignment(view, broker_id, failures)
        moves = PartitionMoves(leadership, logs, failures)
        self._keeper = Keeper("partitions", broker_id, self._assignment, moves)
        logs.subscribe_lost(self._partition_lost)
        view.subscribe(self._topic_changed)
        view.subscribe_leaders(self._leader_changed)
        view.subscribe_brokers(self.reconsider)

    def _partition_lost(self, topic: str, index: int) -> None:
        self._assignment.reconsider([(topic, index)])
        self._keeper.poke()

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        self._assignment.topic_changed(before, after)
        self._keeper.poke()

    def _leader_changed(self, topic: str, index: int, leader: LeaderRecord | None) -> None:
        self._assignment.reconsider([(topic, index)])
        self._keeper.poke()

    def reconsider(self) -> None:
        """Compare what this broker leads with what it should, as after a registration."""
        self._assignment.reconsider_all()
        self._keeper.poke()

    async def start(self) -> None:
        """Claim the partitions without a leader that this broker should lead; returns once it leads them."""
        self.reconsider()
        await self._keeper.settled()

    async def handed_over(self) -> None:
        """Wait until this broker has handed over every partition that another one should lead."""
        await self._keeper.settled()

    async def resign_all(self) -> None:
        """Resign all partitions: the lease has ended, or the broker stops and no other one is there.

        Accepted records are published if no other broker leads yet.
        """
        await self._resign_led()
        # The keys of claims that were in flight went with the lease, too: without them no client finds a partition.
        await self._keeper.settled()
        await self._resign_led()

    async def _resign_led(self) -> None:
        await asyncio.gather(*(self._logs.resign(partition) for partition in tuple(self._logs.partitions())))

    async def close(self) -> None:
        """Stop claiming and resigning."""
        await self._keeper.close()
