"""The keeper's moves for partitions: this broker becomes their leader, or resigns."""

import asyncio
import logging
from collections.abc import Iterator

from kafscale.cluster.leadership import Claimed, Leadership, TopicPartition
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.ops.item_failures import ItemFailures

logger = logging.getLogger(__name__)

LEAST_AT_ONCE, MOST_AT_ONCE = 32, 128
"""So many resign at the same time, between these a hundredth of all: the more, the longer each of them pauses, and
the fewer, the longer it takes until all have (docs/scale.md)."""


class PartitionMoves:
    """See `Owner`. An item is a topic's name and a partition's number."""

    def __init__(self, leadership: Leadership, logs: LogManager, failures: ItemFailures) -> None:
        self._leadership = leadership
        self._logs = logs
        self._failures = failures

    def owns(self, item: TopicPartition) -> bool:
        """True if this broker leads the partition."""
        return self._logs.partition(*item) is not None

    async def claim(self, items: set[TopicPartition]) -> None:
        """Claim those that no broker leads. Raises `LeaseEndedError`, and once all are done the first one's error."""
        problems: list[Exception] = []

        def lead(claimed: Claimed) -> None:
            try:
                self._logs.lead(claimed)
            except Exception as problem:  # noqa: BLE001 - raised below
                self._failures.report(f"{claimed.topic}-{claimed.index}", problem)
                problems.append(problem)

        with self._logs.claims.making(items):
            elected = await self._leadership.claim(sorted(items), lead)
        if elected:
            logger.info(
                "leads more partitions", extra={"gained": len(elected), "led": self._logs.partition_count}
            )
        if problems:
            raise problems[0]

    async def resign(self, items: set[TopicPartition]) -> None:
        """Publish what was accepted, and release each partition as soon as that is done.

        A few at a time: the others serve their clients until it is their turn.
        """
        waiting, most = iter(sorted(items)), min(MOST_AT_ONCE, max(LEAST_AT_ONCE, len(items) // 100))
        resigning: dict[asyncio.Task[None], tuple[TopicPartition, int]] = {}
        try:
            while self._start_resigning(waiting, resigning, most) or resigning:
                done, _ = await asyncio.wait(resigning, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled() and isinstance(problem := task.exception(), Exception):
                        self._failures.report(task.get_name(), problem)
                await self._leadership.release(dict(sorted(resigning.pop(task) for task in done)))
        finally:
            for task in resigning:
                task.cancel()
        logger.info(
            "handed over partitions", extra={"handed_over": len(items), "led": self._logs.partition_count}
        )

    def _start_resigning(
        self,
        waiting: Iterator[TopicPartition],
        resigning: dict[asyncio.Task[None], tuple[TopicPartition, int]],
        most: int,
    ) -> bool:
        """Start more until that many resign; False if there were none."""
        has_started = False
        while len(resigning) < most and (item := next(waiting, None)) is not None:
            partition = self._logs.partition(*item)
            if partition is not None:
                task = asyncio.create_task(self._resign(item, partition), name=f"resign {partition.id}")
                resigning[task] = (item, partition.led_since_revision)
                has_started = True
        return has_started

    async def _resign(self, item: TopicPartition, partition: Partition) -> None:
        if not await self._logs.resign(partition):
            await self._leadership.release_records([item])

    async def release_stale(self, items: set[TopicPartition]) -> None:
        """Release partitions whose leader key is under this broker's lease although it does not lead them."""
        await self._leadership.release_records(sorted(items))
        await self._leadership.release_stale(sorted(items))
