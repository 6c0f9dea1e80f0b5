"""Refusals of produce that wait briefly for a partition's new leader, so that their clients find it.

During a hand-over a partition has no leader for some milliseconds. A client that gets NOT_LEADER_OR_FOLLOWER at once
finds no leader, or the old one, and waits for its back-off before it requests Metadata again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from kafscale.cluster.leadership import TopicPartition
from kafscale.cluster.view import ClusterView
from kafscale.tasks.keyed_wait import KeyedWait

MAX_WAIT_SEC = 0.5


class LeaderChanges:
    """One wait for each partition that changes its leader, shared by all refusals of it."""

    def __init__(self, view: ClusterView, broker_id: int, max_wait_sec: float = MAX_WAIT_SEC) -> None:
        self._view = view
        self._broker_id = broker_id
        self._max_wait_sec = max_wait_sec
        self._waits: KeyedWait[TopicPartition, None] = KeyedWait("leader of", self._wait, None, joins=True)

    def when_known(self, topic: str, index: int, refuse: Callable[[], None]) -> None:
        """Call `refuse` when another broker leads the partition, or none has for too long."""
        if self._is_known(topic, index):
            refuse()
        else:
            self._waits.add((topic, index), lambda _: refuse())

    def _is_known(self, topic: str, index: int) -> bool:
        leader = self._view.leader(topic, index)
        return (leader is not None and leader.broker_id != self._broker_id) or self._view.topic(topic) is None

    async def _wait(self, partition: TopicPartition) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait_sec):
                await self._view.wait_until(lambda: self._is_known(*partition))

    async def close(self) -> None:
        """Refuse the requests that wait."""
        await self._waits.close()
