"""The preferred and the actual owners of partitions and of group shards, by the view: what the keeper works from.

Both assignments queue what changed until the keeper looks. Shards are few and always the same; partitions come and
go with their topics, and may be so many that one look is made in several passes.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Final

from kafscale.cluster.keeper import Wanted
from kafscale.cluster.leadership import TopicPartition
from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.rankings import Rankings
from kafscale.cluster.view import ClusterView
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.ops.item_failures import ItemFailures

PARTITIONS_OF_A_PASS: Final = 10_000
"""A pass ends with the topic that makes it so many: the event loop is held up for no longer than these take."""

# Part of what brokers of different versions must agree on while they run side by side.
_SHARDS_NAME: Final = "group-shards"


class ShardAssignment:
    """See `Assignment`. An item is a group shard's number."""

    def __init__(self, view: ClusterView, broker_id: int) -> None:
        self._view = view
        self._broker_id = broker_id
        self._changed: set[int] = set()

    def reconsider(self, items: Iterable[int]) -> None:
        """Name these shards at the next `changed`."""
        self._changed.update(items)

    def reconsider_all(self) -> None:
        """Name every shard at the next `changed`."""
        self._changed.update(range(keys.GROUP_SHARD_COUNT))

    def changed(self) -> Iterator[Wanted[int]]:
        """Every shard of which anything changed."""
        brokers = self._view.brokers_to_prefer(self._broker_id)
        preferred = preferred_brokers(_SHARDS_NAME, keys.GROUP_SHARD_COUNT, brokers)
        changed, self._changed = self._changed, set()
        for shard in sorted(changed):
            yield Wanted(shard, preferred[shard] if preferred else None, self._view.coordinator(shard))

    def has_more(self) -> bool:
        """Never: there are few shards."""
        return False


class PartitionAssignment:
    """See `Assignment`. An item is a topic's name and a partition's number. `failures`: of topics with a defect."""

    def __init__(self, view: ClusterView, broker_id: int, failures: ItemFailures) -> None:
        self._view = view
        self._broker_id = broker_id
        self._failures = failures
        # In the order in which they are looked at: those that waited longest come first.
        self._topics: dict[str, None] = {}
        self._items: set[TopicPartition] = set()
        self._preferred: dict[str, tuple[int, ...]] = {}
        self._rankings = Rankings()
        self._brokers: tuple[int, ...] = ()

    def topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        """A topic was created, changed or deleted."""
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

        Of many topics only the first: see `has_more`. Everything named of a topic is its current state.
        """
        brokers = self._view.brokers_to_prefer(self._broker_id)
        if brokers != self._brokers:
            self._brokers = brokers
            self._preferred.clear()
        items, self._items = self._items, set()
        whole = set()
        partitions = 0
        while self._topics and partitions < PARTITIONS_OF_A_PASS:
            name = next(iter(self._topics))
            del self._topics[name]
            topic = self._view.topic(name)
            if topic is not None:
                whole.add(name)
                partitions += topic.partition_count
                yield from self._guarded(topic, range(topic.partition_count))
        # Only these, not their topics: the leaders of a large topic change in many steps.
        for name, group in groupby(sorted(items), key=itemgetter(0)):
            is_named = name in whole or name in self._topics  # With all of its topic, if not now then later.
            topic = None if is_named else self._view.topic(name)
            if topic is not None:
                indexes = (index for _, index in group)
                yield from self._guarded(topic, takewhile(topic.partition_count.__gt__, indexes))

    def has_more(self) -> bool:
        """True if a change is still to be named, by the next `changed`."""
        return bool(self._topics or self._items)

    def _guarded(self, topic: TopicRecord, indexes: Iterable[int]) -> Iterator[Wanted[TopicPartition]]:
        """As `_of_topic`; a defect at one topic does not affect the others."""
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
