"""The lag of share groups: records that are not finished, in as many partitions as a limit allows.

The partitions' leaders write how far a group is, so its coordinator reads that now and then, with the log ends of the
same moment: a lag of an end of now and a state of half a minute ago would be that of a group that does not keep up.
What cannot have changed is not read: a group without members finishes nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.share_start_record import AS_CONFIGURED, ShareStartRecord
from kafscale.formats.share_state_record import ShareStateRecord, StoredShareState, decode_share_state
from kafscale.groups.lag import LogEndOffset
from kafscale.groups.log_end_offsets import REFRESH_SEC, stored_end_offsets
from kafscale.groups.offsets import TopicPartition
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import MetadataStore, read_many
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.share.state.starts import ShareStarts
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

SETTLED_MS: Final = 120_000
"""After its last member left nothing of a group changes any more: the longest lock is over."""


def finished_records(state: ShareStateRecord) -> int:
    """Records from the start offset on that are acknowledged or archived."""
    return _count(state, (StoredShareState.ACKNOWLEDGED, StoredShareState.ARCHIVED))


def lag_of(state: ShareStateRecord, end_offset: int) -> int:
    """The records from the start offset to the log's end, without those that are finished."""
    # The end may be older than the state, and a start may have been set beyond it.
    return max(end_offset - state.start_offset - finished_records(state), 0)


def _count(state: ShareStateRecord, states: Sequence[StoredShareState]) -> int:
    return sum(run.last - run.first + 1 for run in state.runs if run.state in states)


class ShareLagRow(NamedTuple):
    """A partition of a share group. `start_offset`: `AS_CONFIGURED` before the first fetch.

    `log_end_offset`: None if it is not known. `finished`, `archived`: records from the start offset on that are
    finished, and those of them that are archived. `lag`: None if it is not known.
    """

    group_id: str
    topic: str
    partition: int
    start_offset: int
    log_end_offset: int | None
    finished: int
    archived: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class _Known:
    """A state as it was read, None if there was none. `start_revision`: of the start that it belongs to."""

    start_revision: int
    read_at_ms: int
    start_offset: int
    state: ShareStateRecord | None


class ShareLag:
    """Of the share groups that `groups` returns. `log_end_offset`: of partitions that this broker leads.

    At most `max_series` partitions are followed, those of groups with members first; the others are counted.
    """

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        starts: ShareStarts,
        groups: Callable[[], Iterable[ShareGroup]],
        log_end_offset: LogEndOffset,
        max_series: int,
        now_ms: Callable[[], int],
        refresh_sec: float = REFRESH_SEC,
        failures: Counter[str] | None = None,
    ) -> None:
        self._store = store
        self._view = view
        self._starts = starts
        self._groups = groups
        self._log_end_offset = log_end_offset
        self._max_series = max_series
        self._now_ms = now_ms
        self._refresh_sec = refresh_sec
        self._failures = ItemFailures(BackgroundWork.CONSUMER_LAG, failures)
        self._known: dict[SharePartitionId, _Known] = {}
        self._tasks = TaskOwner()
        self.rows: tuple[ShareLagRow, ...] = ()
        self.omitted_count = 0

    # For any thread

    def samples(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        """Group, topic and partition, and the lag where it is known."""
        for row in self.rows:
            if row.lag is not None:
                yield (row.group_id, row.topic, str(row.partition)), row.lag

    # For the event loop

    def start(self) -> None:
        """Start the periodic reads."""
        self._tasks.spawn(self._run(), "lag of share groups")

    async def close(self) -> None:
        """Stop the reads."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreError as problem:
                logger.info("the lag of share groups is an older one", extra={"problem": str(problem)})
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report("share groups", problem)
            await asyncio.sleep(self._refresh_sec)

    async def refresh(self) -> None:
        """Read what may have changed. Raises `StoreError`, and keeps what it had."""
        followed, unread = await self._followed()
        followed |= await self._read(unread)
        names = {place: self._name(place) for place in followed}
        ends = await self._end_offsets(name for name in names.values() if name is not None)
        rows = []
        async for place, known in in_turns(followed.items()):
            name = names[place]
            if name is not None:
                rows.append(_row(place, name[0], known, ends.get(name)))
        self._known, self.rows = followed, tuple(rows)

    async def _followed(self) -> tuple[dict[SharePartitionId, _Known], dict[SharePartitionId, _Known]]:
        """The partitions of which all is known, and those whose state is to be read."""
        now_ms = self._now_ms()
        known: dict[SharePartitionId, _Known] = {}
        unread: dict[SharePartitionId, _Known] = {}
        omitted = 0
        groups = sorted(self._groups(), key=lambda group: group.state is GroupState.EMPTY)
        async for group in in_turns(groups):
            starts = self._starts.of_group(group.group_id)
            room = self._max_series - len(known) - len(unread)
            omitted += max(len(starts) - room, 0)
            settled_ms = group.state_since_ms + SETTLED_MS if group.state is GroupState.EMPTY else None
            for place, start in islice(starts.items(), room):
                before = self._known.get(place)
                if (
                    before is not None
                    and before.start_revision == start.revision
                    and settled_ms is not None
                    and before.read_at_ms > settled_ms
                ):
                    known[place] = before
                else:
                    unread[place] = _Known(start.revision, now_ms, start.record.start_offset, None)
        self.omitted_count = omitted
        return known, unread

    async def _read(self, unread: Mapping[SharePartitionId, _Known]) -> dict[SharePartitionId, _Known]:
        read: dict[SharePartitionId, _Known] = {}
        places = list(unread)
        for begin in range(0, len(places), self._store.max_operations):
            by_key = {
                keys.share_state(one): one for one in places[begin : begin + self._store.max_operations]
            }
            found = await read_many(self._store, list(by_key))
            for key, place in by_key.items():
                known, item = unread[place], found.get(key)
                start = self._starts.get(place)
                if item is None or start is None:
                    read[place] = known
                    continue
                state = _state_of(start.record, key, item.value)
                read[place] = _Known(known.start_revision, known.read_at_ms, known.start_offset, state)
        return read

    def _name(self, place: SharePartitionId) -> TopicPartition | None:
        topic = self._view.topic_by_id(place.topic_id)
        return None if topic is None else (topic.name, place.partition)

    async def _end_offsets(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        elsewhere = []
        for one in set(wanted):
            end = self._log_end_offset(*one)
            if end is None:
                elsewhere.append(one)
            else:
                ends[one] = end
        return ends | await stored_end_offsets(self._store, elsewhere)


def _state_of(start: ShareStartRecord, key: str, value: bytes) -> ShareStateRecord | None:
    """The state if it can be read and is of this start; the leader reports what it cannot read."""
    try:
        state = decode_share_state(key, value)
    except CorruptDataError:
        return None
    return state if state.state_epoch == start.state_epoch else None


def _row(place: SharePartitionId, topic: str, known: _Known, end_offset: int | None) -> ShareLagRow:
    state = known.state
    if state is None:
        start_offset = max(known.start_offset, AS_CONFIGURED)
        return ShareLagRow(place.group_id, topic, place.partition, start_offset, end_offset, 0, 0, None)
    return ShareLagRow(
        place.group_id,
        topic,
        place.partition,
        state.start_offset,
        end_offset,
        finished_records(state),
        _count(state, (StoredShareState.ARCHIVED,)),
        None if end_offset is None else lag_of(state, end_offset),
    )
