"""Markers of one shard's groups: how transactions ended whose offsets are pending in them.

The marker's key is put with the decision. The group's coordinator makes the offsets visible, or drops them, and
deletes the key last: as long as it is there, this or the next coordinator does the same again, and the producer's
next transaction does not begin.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.marker_record import MarkerRecord, decode_marker_record
from kafscale.formats.pending_offsets import PendingOffsets
from kafscale.groups.group_puts import record_put
from kafscale.groups.offsets import TopicPartition
from kafscale.groups.pending import Change, Transaction
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, MetadataStore, Operation, Put
from kafscale.ops.item_failures import ItemFailures
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC: Final = 0.2
_MARKERS_PER_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class _Marker:
    item: KeyValue
    transaction: Transaction
    record: MarkerRecord


@dataclass(slots=True)
class _Visible:
    """A transaction's offsets as they become visible."""

    operations: list[Operation] = field(default_factory=list)
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)


class ShardMarkers:
    """Applies markers to what is pending in a shard, each in a task of its own, from its claim to its loss.

    A marker may be delivered more than once, and late: by the load, by the watch, by the snapshot that follows a
    broken watch; and the transaction's coordinator may put it again before it knows of its deletion. Each is applied
    once, since a later transaction of the same producer has the same key.
    """

    def __init__(self, shard: GroupShard, store: MetadataStore, failures: ItemFailures) -> None:
        self.shard = shard
        self._store = store
        self._failures = failures
        self._loaded_revision: int | None = None
        self._early: list[KeyValue] = []
        self._backlog: asyncio.Task[None] | None = None
        self._deleted: dict[str, int] = {}
        self._again: dict[str, _Marker] = {}
        self._tasks = TaskOwner()
        self._is_stopped = False

    async def load(self) -> None:
        """Read the markers that are there, once the shard is loaded. Raises `StoreError`."""
        snapshot = await self._store.range(keys.group_markers(self.shard.shard))
        self._loaded_revision = snapshot.revision
        early, self._early = self._early, []
        newer = [item for item in early if item.mod_revision > snapshot.revision]
        # In a task: nothing is written before the shard is there, which a write may find to be lost.
        self._backlog = self._tasks.spawn(self._begin_all([*snapshot.items, *newer]), "group markers")

    async def put(self, items: Iterable[KeyValue], revision: int) -> None:
        """Markers of the shard that the store has at this revision, or that were put up to it; none is missing."""
        if self._loaded_revision is None:
            self._early += items
            return
        if self._backlog is not None:
            await asyncio.wait([self._backlog])  # Those are older.
        # Older ones were loaded, or the coordinator before has applied and deleted them.
        loaded_revision = self._loaded_revision
        await self._begin_all([item for item in items if item.mod_revision > loaded_revision])
        # Nothing comes any more from before this revision.
        self._deleted = {key: at for key, at in self._deleted.items() if at > revision}

    @property
    def is_busy(self) -> bool:
        """True while a marker is being applied."""
        return bool(self._tasks)

    def stop(self) -> None:
        """Apply no more: another broker coordinates the shard, and has the keys that are left."""
        self._is_stopped = True
        for task in self._tasks.tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop, and return once every task has ended."""
        self._is_stopped = True
        await self._tasks.close()

    async def settled(self) -> None:
        """Wait for the markers of now."""
        while self._tasks:
            await self._tasks.wait()

    async def _begin_all(self, items: Iterable[KeyValue]) -> None:
        async for item in in_turns(items, _MARKERS_PER_TURN):
            if self._is_stopped:
                return
            self._begin(item)

    def _begin(self, item: KeyValue) -> None:
        try:
            transaction = keys.group_and_producer(item.key)
            marker = _Marker(item, transaction, decode_marker_record(item.key, item.value))
        except (ValueError, CorruptDataError) as problem:
            # It stays: it says to those who repair it that the transaction is decided.
            logger.error("a marker cannot be read", extra={"problem": quoted(str(problem), 500)})
            return
        if self._is_deleted(marker):
            return
        self.shard.pending.marker_came(transaction)
        if item.key in self._tasks:
            self._again[item.key] = marker
        else:
            self._tasks.spawn(self._apply_all(marker), "group marker", key=item.key)

    async def _apply_all(self, marker: _Marker) -> None:
        """Apply the marker, and those of the same key that have come meanwhile."""
        following: _Marker | None = marker
        while following is not None:
            if not self._is_deleted(following):
                await self._apply_patiently(following)
            following = self._again.pop(marker.item.key, None)

    async def _apply_patiently(self, marker: _Marker) -> None:
        while True:
            try:
                if await self._apply(marker):
                    return
            except KafkaError:
                return  # Another broker coordinates the shard.
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(quoted(marker.item.key), problem)
            await asyncio.sleep(_RETRY_DELAY_SEC)

    async def _apply(self, marker: _Marker) -> bool:
        """Apply the marker; False if it has to be tried again. Raises `KafkaError` if the shard is lost."""
        if marker.transaction in self.shard.pending.unreadable and marker.record.commit:
            logger.error(
                "a transaction waits for offsets that cannot be read", extra={"key": quoted(marker.item.key)}
            )
            return True
        pending = self._pending_of(marker)
        visible = _Visible()
        if pending is not None and marker.record.commit:
            visible = await _visible(marker.transaction[0], pending)
        # Nothing is awaited between here and the writer's queue: pending offsets may change, the group may go.
        if self._pending_of(marker) is not pending or self._is_being_deleted(marker.transaction[0]):
            return False
        await self._write(marker, pending, visible)
        return True

    def _is_deleted(self, marker: _Marker) -> bool:
        """True if this broker has deleted it; what is pending is of the next transaction."""
        return marker.item.mod_revision < self._deleted.get(marker.item.key, 0)

    def _pending_of(self, marker: _Marker) -> PendingOffsets | None:
        """The offsets that the marker is for."""
        pending = self.shard.pending.of(marker.transaction)
        return None if pending is None or _is_newer(pending, marker) else pending

    def _is_being_deleted(self, group_id: str) -> bool:
        running = self.shard.groups.get(group_id)
        return running is not None and running.group.state is GroupState.DEAD

    async def _write(self, marker: _Marker, pending: PendingOffsets | None, visible: _Visible) -> None:
        """Queue all of it at once, the marker last, and wait: a coordinator that stops half way is no loss."""
        shard, (group_id, _) = self.shard, marker.transaction
        changes = [] if pending is None else [Change(marker.transaction, pending, None)]
        last: list[Operation] = [Delete(marker.item.key)]
        if pending is not None or shard.pending.of(marker.transaction) is None:
            # Deleted also if nothing is known to be there: a failed deletion of the group may have left it.
            last.insert(0, Delete(keys.pending_offsets(*marker.transaction)))
        if pending is not None and marker.record.commit:
            outrun = shard.pending.outrun(marker.transaction, pending)
            last = [*(change.operation() for change in outrun), *last]
            changes += outrun
        running = self._group(group_id, creates=bool(visible.operations))
        if running is None:
            await self._write_all(marker, changes, [*visible.operations, *last])
            return
        with shard.commit_in_flight(running):
            first = record_put(running) if visible.operations else []
            # Before what is pending is not counted any more: the count is never less than what the store has.
            running.stored.put(visible.sizes)
            running.expiry_check_at_ms = 0
            if running.touched is not None:
                running.touched.update(one.key for one in visible.operations)
            await self._write_all(marker, changes, [*first, *visible.operations, *last])
            if first:
                running.in_store = InStore.YES
        shard.notify_committed(running, visible.committed)

    async def _write_all(
        self, marker: _Marker, changes: Sequence[Change], operations: Sequence[Operation]
    ) -> None:
        self.shard.change_pending(changes)
        # At once: the next transaction may begin, and another marker of the same key follow.
        self._deleted[marker.item.key] = await self.shard.write_patiently(operations)
        self.shard.pending.unreadable.discard(marker.transaction)

    def _group(self, group_id: str, *, creates: bool) -> RunningGroup | None:
        """The group; None if its record cannot be read, or there is none and none is needed."""
        running = self.shard.groups.get(group_id)
        if running is None and creates and group_id not in self.shard.unreadable:
            return self.shard.create(group_id)
        return running


def _is_newer(pending: PendingOffsets, marker: _Marker) -> bool:
    return pending.producer_epoch > marker.record.producer_epoch


async def _visible(group_id: str, pending: PendingOffsets) -> _Visible:
    visible = _Visible()
    async for place, offset in in_turns(pending.offsets.items()):
        key = keys.group_offset(group_id, *place)
        visible.operations.append(Put(key, offset.value))
        visible.sizes[place] = stored_size(key, offset.value)
        visible.committed[place] = offset.committed(key)
    return visible
