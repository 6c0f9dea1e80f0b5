"""Consumer lag: how far each group is behind in each partition, of as many partitions as a limit allows.

The table is kept by the event loop and read by the scrape's thread. First come, first served: what comes when
the limit is reached is left out, and counted. It gets a place at its next commit once one is free.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.offsets import TopicPartition
from kafscale.metadata.model import TopicRecord, TopicState

LogEndOffset = Callable[[str, int], int | None]
"""The log end offset of a topic's partition; None when this broker does not hold it. For any thread."""

Series = tuple[str, str, int]
"""Group, topic, partition."""


class ConsumerLag:
    """The last committed offset of up to `max_series` partitions of groups.

    Up to as many again are remembered as left out. `removals` grows whenever something is removed: who reads
    the store meanwhile cannot trust what was read.
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
        for (group_id, topic, index), offset in self._offsets.copy().items():
            end = self._log_end_offset(topic, index)
            if end is not None:
                yield (group_id, topic, str(index)), max(end - offset, 0)

    def partitions(self) -> set[TopicPartition]:
        """The partitions that are in the table."""
        return {(topic, index) for _, topic, index in self._offsets}

    @property
    def series_count(self) -> int:
        """How many partitions of groups are in the table."""
        return len(self._offsets)

    @property
    def omitted_count(self) -> int:
        """How many are known to be left out; counted up to the limit."""
        return len(self._omitted)

    # What the coordinator tells

    def committed(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """These offsets of the group are durable."""
        for (topic, index), committed in offsets.items():
            series = (group_id, topic, index)
            if series in self._offsets:
                self._offsets[series] = committed.offset
            else:
                self._add(series, committed)

    def seed(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The store has these offsets of the group; what was committed here meanwhile is newer."""
        for (topic, index), committed in offsets.items():
            series = (group_id, topic, index)
            if series not in self._offsets:
                self._add(series, committed)

    @property
    def is_full(self) -> bool:
        """Whether anything further would neither be exported nor counted."""
        return len(self._offsets) >= self._max_series and len(self._omitted) >= self._max_series

    def forget_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """The group has no offsets in these partitions any more."""
        self._remove([(group_id, topic, index) for topic, index in partitions])

    def forget_group(self, group_id: str) -> None:
        """The group is gone, or another broker coordinates it."""
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
            return  # It means a topic that is gone.
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
                held = index.get(name)
                if held is not None:
                    held.discard(series)
                    if not held:
                        del index[name]
