"""Refusals of produce that wait for a moment until it is known who leads: a client that asks then is told.

While a partition goes from one broker to another nobody leads it for some milliseconds. A client that hears
NOT_LEADER_OR_FOLLOWER at once finds no leader, or the old one, and waits for its back-off before it asks again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from kafscale.cluster.view import ClusterView
from kafscale.tasks.owner import TaskOwner

MAX_WAIT_SEC = 0.5


class LeaderChanges:
    """One wait for each partition that changes its leader, for all whose refusal depends on it."""

    def __init__(self, view: ClusterView, broker_id: int, max_wait_sec: float = MAX_WAIT_SEC) -> None:
        self._view = view
        self._broker_id = broker_id
        self._max_wait_sec = max_wait_sec
        self._waiting: dict[tuple[str, int], list[Callable[[], None]]] = {}
        self._tasks = TaskOwner()

    def when_known(self, topic: str, index: int, refuse: Callable[[], None]) -> None:
        """Call `refuse` once another broker leads the partition, or nobody does for too long."""
        if self._is_known(topic, index):
            refuse()
            return
        waiting = self._waiting.get((topic, index))
        if waiting is not None:
            waiting.append(refuse)
            return
        self._waiting[topic, index] = [refuse]
        self._tasks.spawn(self._wait(topic, index), f"leader of {topic}-{index}")

    def _is_known(self, topic: str, index: int) -> bool:
        leader = self._view.leader(topic, index)
        return (leader is not None and leader.broker_id != self._broker_id) or self._view.topic(topic) is None

    async def _wait(self, topic: str, index: int) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._max_wait_sec):
                    await self._view.wait_until(lambda: self._is_known(topic, index))
        finally:
            for refuse in self._waiting.pop((topic, index)):
                refuse()

    async def close(self) -> None:
        """Refuse what waits."""
        await self._tasks.close()
