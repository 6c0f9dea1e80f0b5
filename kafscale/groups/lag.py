"""Consumer lag: how far each group is behind in each partition, for as many partitions as a limit allows.

The event loop updates the table, and the scrape's thread reads it. First come, first served: a partition that
comes when the table is full is omitted, and counted. It is added at its next commit once there is room.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.offsets import TopicPartition
from kafscale.metadata.model import TopicRecord, TopicState

LogEndOffset = Callable[[str, int], int | None]
"""The log end offset of a topic's partition; None if this broker does not know it. For any thread."""

Series = tuple[str, str, int]
"""Group, topic, partition."""


class ConsumerLag:
    """The last committed offsets of up to `max_series` partitions of groups.

    Up to as many again are remembered as omitted. `removals` grows with each removal: what was read from the store
    meanwhile may be outdated.
    """

    def __init__(self, view: ClusterView, log_end_offset: LogEndOffset, max_series: int) -> None:
        self.removals = 0
        self._view = view
        self._log_end_offset = log_end_offset
        self._max_series = max_series
        self._offsets: dict[Series, int] = {}
        self._omitted: set[Series] = set()
        self._by_group: dict[str, set[Series]] = {}
        self._by_topic: dict[str, set[Series]] = {}
        view.subscribe(self._topic_changed)

    # What the scrape reads, in its own thread

    def samples(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        """Group, topic and partition, and the records between the committed offset and the log's end."""
        for (group_id, topic, index), offset, end in self.positions():
            if end is not None:
                yield (group_id, topic, str(index)), max(end - offset, 0)

    def positions(self) -> Iterator[tuple[Series, int, int | None]]:
        """Each series with its committed offset and the log end offset, None while that is not known."""
        for series, offset in self._offsets.copy().items():
            yield series, offset, self._log_end_offset(series[1], series[2])

    def partitions(self) -> set[TopicPartition]:
        """The partitions that are in the table."""
        return {(topic, index) for _, topic, index in self._offsets}

    @property
    def series_count(self) -> int:
        """The number of partitions of groups that are in the table."""
        return len(self._offsets)

    @property
    def omitted_count(self) -> int:
        """The number of omitted partitions of groups; counted up to the limit."""
        return len(self._omitted)

    # What the coordinator reports

    def committed(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Record offsets of the group that are durable."""
        for (topic, index), committed in offsets.items():
            series = (group_id, topic, index)
            if series in self._offsets:
                self._offsets[series] = committed.offset
            else:
                self._add(series, committed)

    def seed(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets of the group that were read from the store, unless a newer one was committed here."""
        for (topic, index), committed in offsets.items():
            series = (group_id, topic, index)
            if series not in self._offsets:
                self._add(series, committed)

    @property
    def is_full(self) -> bool:
        """True if a further partition would neither be exported nor counted."""
        return len(self._offsets) >= self._max_series and len(self._omitted) >= self._max_series

    def remove_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove the group's offsets of these partitions."""
        self._remove([(group_id, topic, index) for topic, index in partitions])

    def remove_group(self, group_id: str) -> None:
        """Remove the group: it was deleted, or another broker coordinates it."""
        self._remove(self._by_group.get(group_id, ()))

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if before is not None and (after is None or after.state is not TopicState.ACTIVE):
            self._remove(self._by_topic.get(before.name, ()))

    def _add(self, series: Series, committed: CommittedOffset) -> None:
        has_room = len(self._offsets) < self._max_series
        if not has_room and (series in self._omitted or self.is_full):
            return
        group_id, topic, _ = series
        record = self._view.topic(topic)
        if record is None or record.topic_id != committed.topic_id:
            return  # The offset is of a deleted topic.
        if has_room:
            self._omitted.discard(series)
            self._offsets[series] = committed.offset
        else:
            self._omitted.add(series)
        self._by_group.setdefault(group_id, set()).add(series)
        self._by_topic.setdefault(topic, set()).add(series)

    def _remove(self, gone: Iterable[Series]) -> None:
        self.removals += 1
        for series in tuple(gone):
            self._offsets.pop(series, None)
            self._omitted.discard(series)
            for index, name in ((self._by_group, series[0]), (self._by_topic, series[1])):
                indexed = index.get(name)
                if indexed is not None:
                    indexed.discard(series)
                    if not indexed:
                        del index[name]
