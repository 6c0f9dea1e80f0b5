"""Tells which topics have nothing new, for next to nothing: without their leases, without their tables.

At the beginning of a round the ends of all topics are read together, each journal once. A topic whose ends are those
of its last finished export is idle. In the first round of a process the table shows it, if what the last exporter
reported agrees. Now and then every topic is exported as usual: a table may have been rolled back.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kafscale.broker.stores import open_exports_for_reading
from kafscale.cluster.exports import read_exports
from kafscale.errors import KafscaleError
from kafscale.formats.export_records import ExportProgress
from kafscale.formats.export_records import ExportState as ShownState
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_state import ExportState
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.topic_state import Freshness, TopicStates
from kafscale.settings.broker import Settings
from kafscale.tasks.bounded import map_bounded
from spark_jobs.source.store_access import StoreAccess

REMEMBERED_SEC: Final = 600.0
SHOWN_SEC: Final = 3600.0
_TOPICS_AT_ONCE: Final = 8

ReadState = Callable[[str, str], ExportState | None]
"""The export state that a table has of a topic, None if the table cannot be read."""


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The ends of a topic's partitions at one moment: those of what can be exported, and the logs' own."""

    topic_id: UUID
    ends: Mapping[int, int]
    log_ends: Mapping[int, int] = field(default_factory=dict, compare=False)

    def are_exported(self, state: ExportState, shown: ExportProgress | None) -> bool:
        """True if the table has everything, and others are shown that."""
        if shown is None or shown.state is not ShownState.FINISHED or shown.positions != self.ends:
            return False
        positions = {partition: state.position(partition) for partition in state.starts}
        return state.topic_id == str(self.topic_id) and positions == self.ends


class IdleTopics:
    """The topics of a job. `wants`: all that may ever be asked for; `clock`: monotonic seconds."""

    def __init__(
        self,
        stores: StoreAccess,
        settings: Settings,
        freshness: Freshness,
        wants: Callable[[str], bool],
        read_state: ReadState,
        events: ExportEvents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._freshness = freshness
        self._wants = wants
        self._read_state = read_state
        self._events = events
        self._clock = clock
        self._states: TopicStates | None = None
        self._shown: dict[tuple[str, str], ExportProgress] | None = None
        self._now: dict[str, TopicEnds] = {}
        self._finished: dict[tuple[str, str], tuple[TopicEnds, float]] = {}
        self._looked_sec = 0.0

    def begin_round(self, topics: Iterable[str]) -> None:
        """Look at all of them. What cannot be read is not idle: its export reports the reason."""
        wanted = list(topics)
        self._looked_sec = time.time()
        try:
            self._now = self._stores.run(lambda *stores: self._look(wanted, *stores))
            if self._shown is None:
                self._shown = self._stores.run(self._read_shown)
        except KafscaleError:
            self._now, self._shown = {}, self._shown or {}

    def is_idle(self, topic: str, table: str) -> bool:
        """True if the topic had nothing new as the round began; its listeners know by then."""
        now = self._now.get(topic)
        if now is None:
            return False
        if (topic, table) in self._finished:
            ends, since = self._finished[topic, table]
            if ends != now or self._clock() - since > REMEMBERED_SEC:
                return False
        elif not self._is_in_table(topic, table, now):
            return False
        else:
            self._events.topic_started(topic, table, now.ends, now.log_ends)
            self._finished[topic, table] = now, self._clock()
        self._events.topic_complete(topic, self._looked_sec)
        self._events.topic_finished(topic)
        return True

    def finished(self, topic: str, table: str) -> None:
        """The topic's export has succeeded: the table has what there was as the round began, at least."""
        if topic in self._now:
            self._finished[topic, table] = self._now[topic], self._clock()

    def _is_in_table(self, topic: str, table: str, now: TopicEnds) -> bool:
        shown = (self._shown or {}).get((topic, table))
        # The table is the dearest to ask, and decides.
        if shown is None or shown.positions != now.ends or self._is_old(shown):
            return False
        state = self._read_state(table, topic)
        return state is not None and now.are_exported(state, shown)

    def _is_old(self, shown: ExportProgress) -> bool:
        """True if others were not shown for long that the table is complete: lags in time are measured from then."""
        return shown.complete_ms is None or self._looked_sec - shown.complete_ms / 1000 > SHOWN_SEC

    async def _look(
        self, topics: list[str], metadata: MetadataReader, objects: ListingReader
    ) -> dict[str, TopicEnds]:
        if self._states is None:
            self._states = TopicStates(
                metadata, objects, self._settings.s3_namespace, self._freshness, self._wants
            )
        states, followed = self._states, set[str]()

        async def ends(topic: str) -> TopicEnds | None:
            try:
                found = await states.ends(topic, followed=followed)
            except KafscaleError:
                return None
            return TopicEnds(
                found[0].topic_id,
                {one.partition: one.end_offset for one in found},
                {one.partition: one.log_end_offset for one in found},
            )

        found = await map_bounded(ends, topics, _TOPICS_AT_ONCE)
        return {topic: one for topic, one in zip(topics, found, strict=True) if one is not None}

    async def _read_shown(
        self, _: MetadataReader, __: ListingReader
    ) -> dict[tuple[str, str], ExportProgress]:
        shown: dict[tuple[str, str], ExportProgress] = {}
        async with contextlib.AsyncExitStack() as stack:
            for reader in await open_exports_for_reading(self._settings, stack):
                for topic in await read_exports(reader):
                    shown |= {(topic.topic, one.table): one for one in topic.progress}
        return shown
