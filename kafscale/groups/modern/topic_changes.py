"""Tells groups whose partitions are assigned here that topics came, went, or grew, as this broker's view shows it."""

import asyncio
from collections.abc import Callable, Iterable

from kafscale.cluster.view import ClusterView
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.group import Group
from kafscale.groups.modern.events import TopicsChanged
from kafscale.groups.modern.topics import topics_of_records
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.share.share_group import ShareGroup
from kafscale.metadata.model import TopicRecord
from kafscale.ops.item_failures import ItemFailures
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.owner import TaskOwner


class TopicChanges:
    """`groups` returns all that this broker coordinates. `now_ms`: Unix milliseconds."""

    def __init__(
        self,
        view: ClusterView,
        groups: Callable[[], Iterable[RunningGroup]],
        now_ms: Callable[[], int],
        failures: ItemFailures,
    ) -> None:
        self._view = view
        self._groups = groups
        self._now_ms = now_ms
        self._failures = failures
        self._changed: set[str] = set()
        self._came_or_went = False
        self._tasks = TaskOwner()
        self._unsubscribe = view.subscribe(self._topic_changed)

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        for topic in (before, after):
            if topic is not None:
                self._changed.add(topic.name)
        if before is None or after is None or before.topic_id != after.topic_id:
            self._came_or_went = True
        if not self._tasks:
            self._tasks.spawn(self._tell(), "topics of consumer groups")

    async def _tell(self) -> None:
        # Many topics change together: each group hears of them once.
        await asyncio.sleep(0)
        while self._changed:
            changed, self._changed = self._changed, set()
            came_or_went, self._came_or_went = self._came_or_went, False
            async for running in in_turns(list(self._groups())):
                group = running.group
                if isinstance(group, Group) or not group.members:
                    continue
                try:
                    self._tell_group(running, group, changed, came_or_went)
                except Exception as problem:  # noqa: BLE001 - reported; the other groups hear of their topics
                    self._failures.report(quoted(group.group_id), problem)

    def _tell_group(
        self, running: RunningGroup, group: ConsumerGroup | ShareGroup, changed: set[str], came_or_went: bool
    ) -> None:
        if came_or_went and isinstance(group, ConsumerGroup):
            group.regexes_are_stale()
        names = group.subscribed_topics()
        if names.isdisjoint(changed):
            return
        records = {name: record for name in names if (record := self._view.topic(name)) is not None}
        running.notify(TopicsChanged(now_ms=self._now_ms(), topics=topics_of_records(records)))

    async def close(self) -> None:
        """Stop telling."""
        self._unsubscribe()
        await self._tasks.close()
