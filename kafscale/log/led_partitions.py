"""The partitions that this broker leads: the driver of their leadership (log/leadership/machine.py)."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from kafscale.log.claims_in_flight import ClaimsInFlight
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.leadership.events import Act, Effect, Event, Refuse
from kafscale.log.partition import Partition
from kafscale.log.writing.flusher import Flusher
from kafscale.ops import metric_families
from kafscale.ops.metrics import MAX_TOPICS, OTHER_TOPICS, LeadershipChange, Metrics

_COUNTED = {
    Act.COUNT_ELECTED: LeadershipChange.GAINED,
    Act.COUNT_HANDED_OVER: LeadershipChange.HANDED_OVER,
    Act.COUNT_LOST: LeadershipChange.LOST,
}


class StoredTopic(NamedTuple):
    """Of the partitions of a topic that this broker leads.

    `offsets`: from the log start to the log end. `segments`, `size_bytes`: published, in the `loaded` partitions.
    """

    partitions: int
    loaded: int
    offsets: int
    segments: int
    size_bytes: int


class LedPartitions:
    """Partitions by topic and number, from their election until they are closed or their topic is deleted.

    `on_lost` is called with topic and number of a partition that is lost without having resigned. `changes` grows
    with each partition that is served from then on, or no longer.
    """

    def __init__(
        self,
        claims: ClaimsInFlight,
        followed: FollowedPartitions,
        flusher: Flusher,
        metrics: Metrics,
        on_lost: Callable[[str, int], None],
    ) -> None:
        self._claims = claims
        self._followed = followed
        self._flusher = flusher
        self._metrics = metrics
        self._on_lost = on_lost
        self._served: dict[str, dict[int, Partition]] = {}
        self.changes = 0
        flusher.subscribe(self.apply)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._served.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, list(self._served.values())))

    def register_gauges(self, metrics: Metrics) -> None:
        """Register the numbers and the bytes of the partitions, in all and by topic."""
        metrics.gauge(metric_families.PARTITIONS_LED, lambda: len(self))
        metrics.gauge_series(metric_families.TOPIC_PARTITIONS_LED, lambda: self._by_topic(_one))
        metrics.gauge_series(metric_families.TOPIC_STORED_BYTES, lambda: self._by_topic(_stored_bytes))
        metrics.gauge_series(metric_families.TOPIC_LAST_STABLE_OFFSET_LAG, self._last_stable_offset_lags)

    def _by_topic(self, value: Callable[[Partition], int]) -> Iterable[tuple[tuple[str, ...], float]]:
        """The sums over each topic's partitions, for any thread: each dictionary is copied before it is walked."""
        others: int | None = None
        for number, (topic, partitions) in enumerate(list(self._served.items())):
            found = sum(map(value, list(partitions.values())))
            if number < MAX_TOPICS:
                yield (topic,), found
            else:
                others = (others or 0) + found
        if others is not None:
            yield (OTHER_TOPICS,), others

    def _last_stable_offset_lags(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """The largest of each topic that has one, for any thread."""
        others = number = 0
        for topic, partitions in list(self._served.items()):
            lag = max(map(_last_stable_offset_lag, list(partitions.values())), default=0)
            if lag and number < MAX_TOPICS:
                number += 1
                yield (topic,), lag
            else:
                others = max(others, lag)
        if others:
            yield (OTHER_TOPICS,), others

    def stored_by_topic(self) -> dict[str, StoredTopic]:
        """The stored part of each topic, for any thread."""
        return {
            topic: _stored_topic(list(partitions.values()))
            for topic, partitions in list(self._served.items())
        }

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, None when this broker does not lead it."""
        partitions = self._served.get(topic)
        return None if partitions is None else partitions.get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        """Those of one topic."""
        return list(self._served.get(topic, {}).values())

    def delete_topic(self, topic: str) -> list[Partition]:
        """Serve the topic no longer; returns its partitions, whose flushes may still be in flight."""
        partitions = self.of_topic(topic)
        for partition in partitions:
            self.apply(partition, Event.TOPIC_DELETED)
        self.changes += 1
        return partitions

    def apply(self, partition: Partition, event: Event) -> None:
        """Let the event happen to the partition."""
        for effect in partition.leadership.apply(event):
            self._carry_out(partition, effect)

    def _carry_out(self, partition: Partition, effect: Effect) -> None:
        topic, index = partition.id.topic, partition.id.index
        match effect:
            case Refuse():
                message = effect.message.replace("{topic}", repr(topic))
                self._flusher.close_log(partition, effect.error_code, message)
            case Act.SERVE:
                self._serve(partition)
            case Act.STOP_SERVING:
                self.remove(partition)
            case Act.END_CLAIM:
                self._claims.end((topic, index))
            case Act.COUNT_ELECTED | Act.COUNT_HANDED_OVER | Act.COUNT_LOST:
                self._metrics.leadership_changes[_COUNTED[effect]] += 1
            case Act.LOOK_AGAIN:
                self._on_lost(topic, index)
            case Act.NOTIFY_READERS:
                partition.notify_closed()
            case Act.OPEN_LOG:
                raise AssertionError("the partition opens its log itself")

    def _serve(self, partition: Partition) -> None:
        self._served.setdefault(partition.id.topic, {})[partition.id.index] = partition
        self.changes += 1
        self._followed.drop(partition.id.topic, partition.id.index)

    def remove(self, partition: Partition) -> None:
        """Serve the partition no longer. No error if another one is served in its place."""
        topic, index = partition.id.topic, partition.id.index
        if self.get(topic, index) is not partition:
            return
        del self._served[topic][index]
        self.changes += 1
        if not self._served[topic]:
            del self._served[topic]


def _one(_: Partition) -> int:
    return 1


def _stored_bytes(partition: Partition) -> int:
    references = partition.references
    return 0 if references is None else references.size_bytes


def _last_stable_offset_lag(partition: Partition) -> int:
    record = partition.record
    return record.log_end_offset - record.last_stable_offset if record.transactions.open else 0


def _stored_topic(partitions: Collection[Partition]) -> StoredTopic:
    records = [partition.record for partition in partitions]
    loaded = [partition.references for partition in partitions if partition.references is not None]
    return StoredTopic(
        partitions=len(partitions),
        loaded=len(loaded),
        offsets=sum(record.log_end_offset - record.log_start_offset for record in records),
        segments=sum(map(len, loaded)),
        size_bytes=sum(references.size_bytes for references in loaded),
    )
