"""Which partitions this broker should lead and does: what the keeper compares, and how the moves are made."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Final

from kafscale.cluster.keeper import Wanted
from kafscale.cluster.leadership import Claimed, Leadership, TopicPartition
from kafscale.cluster.rankings import Rankings
from kafscale.cluster.view import ClusterView
from kafscale.log.manager import LogManager
from kafscale.metadata.model import TopicRecord
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

logger = logging.getLogger(__name__)

PARTITIONS_OF_A_PASS: Final = 10_000
"""A pass ends with the topic that makes it so many: the event loop is held up for no longer than these take."""


class PartitionHoldings:
    """See `Holdings`. An item is a topic's name and a partition's number."""

    def __init__(self, view: ClusterView, leadership: Leadership, logs: LogManager, broker_id: int) -> None:
        self._view = view
        self._leadership = leadership
        self._logs = logs
        self._broker_id = broker_id
        # In the order in which they are looked at: who waits stays in front.
        self._topics: dict[str, None] = {}
        self._items: set[TopicPartition] = set()
        self._preferred: dict[str, tuple[int, ...]] = {}
        self._rankings = Rankings()
        self._brokers: tuple[int, ...] = ()
        self._failures = ItemFailures(BackgroundWork.KEEPING, logs.metrics.background_failures)

    # --- what changes

    def topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        """A topic came, changed or went."""
        record = after or before
        assert record is not None
        self._preferred.pop(record.name, None)
        if after is None:
            self._rankings.forget(record.name)
        self._topics[record.name] = None

    def reconsider_all(self) -> None:
        """Name every partition at the next calls of `changed`."""
        self._topics |= dict.fromkeys(topic.name for topic in self._view.topics())

    def changed(self) -> Iterator[Wanted[TopicPartition]]:
        """Every partition of which anything changed, and every one of the topics of which anything did.

        Of many topics only the first: see `has_more`. All that is told of a topic is as it is now.
        """
        brokers = self._view.brokers_to_prefer(self._broker_id)
        if brokers != self._brokers:
            self._brokers = brokers
            self._preferred.clear()
        items, self._items = self._items, set()
        told = set()
        partitions = 0
        while self._topics and partitions < PARTITIONS_OF_A_PASS:
            name = next(iter(self._topics))
            del self._topics[name]
            topic = self._view.topic(name)
            if topic is not None:
                told.add(name)
                partitions += topic.partition_count
                yield from self._guarded(topic, range(topic.partition_count))
        # Only these, not their topics: the leaders of a large topic change in many steps.
        for name, group in groupby(sorted(items), key=itemgetter(0)):
            is_named = name in told or name in self._topics  # With all of its topic, if not now then later.
            topic = None if is_named else self._view.topic(name)
            if topic is not None:
                indexes = (index for _, index in group)
                yield from self._guarded(topic, takewhile(topic.partition_count.__gt__, indexes))

    def has_more(self) -> bool:
        """Whether a change is still to be named, by the next `changed`."""
        return bool(self._topics or self._items)

    def _guarded(self, topic: TopicRecord, indexes: Iterable[int]) -> Iterator[Wanted[TopicPartition]]:
        """As `_of_topic`; a defect at one topic is no reason to go without the others."""
        try:
            yield from self._of_topic(topic, indexes)
        except Exception as problem:  # noqa: BLE001 - reported
            self._failures.report(topic.name, problem)

    def _of_topic(self, topic: TopicRecord, indexes: Iterable[int]) -> Iterator[Wanted[TopicPartition]]:
        preferred = self._preferred.get(topic.name)
        if preferred is None:
            preferred = self._rankings.preferred(topic.name, topic.partition_count, self._brokers)
            self._preferred[topic.name] = preferred
        leaders = self._view.leaders(topic.name)
        for index in indexes:
            leader = leaders.get(index)
            yield Wanted(
                (topic.name, index),
                preferred[index] if preferred else None,
                None if leader is None else leader.broker_id,
            )

    def reconsider(self, items: Iterable[TopicPartition]) -> None:
        """Name these partitions at the next `changed`."""
        self._items.update(items)

    # --- the moves

    def holds(self, item: TopicPartition) -> bool:
        """Whether this broker leads the partition."""
        return self._logs.partition(*item) is not None

    async def gain(self, items: set[TopicPartition]) -> None:
        """Lead those that nobody leads. Raises `LeaseEndedError`, and what one of them met once all are done."""
        problems: list[Exception] = []

        def lead(claimed: Claimed) -> None:
            try:
                self._logs.lead(claimed)
            except Exception as problem:  # noqa: BLE001 - raised below
                self._failures.report(f"{claimed.topic}-{claimed.index}", problem)
                problems.append(problem)

        with self._logs.claims.making(items):
            gained = await self._leadership.claim(sorted(items), lead)
        if gained:
            logger.info(
                "leads more partitions", extra={"gained": len(gained), "led": self._logs.partition_count}
            )
        if problems:
            raise problems[0]

    async def let_go(self, items: set[TopicPartition]) -> None:
        """Publish what was accepted and let others lead, each as soon as it can be."""
        resigning: dict[asyncio.Task[None], tuple[TopicPartition, int]] = {}
        for item in sorted(items):
            partition = self._logs.partition(*item)
            if partition is not None:
                task = asyncio.create_task(self._logs.resign(partition), name=f"resign {partition.id}")
                resigning[task] = (item, partition.led_since_revision)
        try:
            while resigning:
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

    async def let_go_strays(self, items: set[TopicPartition]) -> None:
        """Let others lead what the store says that this broker leads, although it does not."""
        await self._leadership.release_strays(sorted(items))
