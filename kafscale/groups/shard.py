"""One group shard that this broker coordinates: its groups, and the single writer of their state."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from kafscale.cluster.coordination import ClaimedShard
from kafscale.errors import CorruptDataError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.group_record import GroupRecord
from kafscale.formats.pending_offsets import decode_pending_offsets
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.consumer.events import Converted
from kafscale.groups.events import Unload
from kafscale.groups.group import Group
from kafscale.groups.group_puts import encode_checked
from kafscale.groups.group_targets import GroupTargets
from kafscale.groups.lag import ConsumerLag
from kafscale.groups.loaded_groups import GroupPolicies, empty_again, load_groups
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.events import Assigned
from kafscale.groups.modern.stored_group import MODERN_GROUP_BYTES, count_members, operations_of
from kafscale.groups.offsets import TopicPartition, read_offsets
from kafscale.groups.online_upgrade import consumer_group_of
from kafscale.groups.pending import Change, ShardPending, reserved_bytes
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.shard_writer import ShardWriter, WriteFailedError, WriteInDoubtError
from kafscale.groups.share.events import StartsInitialized
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.stored_bytes import StoredGroup, stored_size
from kafscale.groups.topic_condition import ConditionalPut
from kafscale.groups.totals import GroupTotals
from kafscale.groups.upgrading import end_classic
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, MetadataStore, Operation, Put, Snapshot
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# A transaction may have thousands of offsets, but has a few.
_TRANSACTIONS_PER_TURN: Final = 16


class GroupShard:
    """Groups by id. `on_fenced` is called when another broker coordinates the shard.

    `check_record` raises `KafkaError` if a group's record may not grow by so many bytes.
    `share_room`: how many bytes more a share group may have of its partitions.
    """

    def __init__(
        self,
        store: MetadataStore,
        claimed: ClaimedShard,
        policies: GroupPolicies,
        write_timeout_sec: float,
        now_ms: Callable[[], int],
        on_fenced: Callable[["GroupShard"], None],
        totals: GroupTotals,
        metrics: GroupMetrics,
        lag: ConsumerLag | None,
        check_record: Callable[[int], None],
        targets: GroupTargets,
        share_room: Callable[[StoredGroup], int] = lambda group: sys.maxsize,
    ) -> None:
        self.shard = claimed.shard
        self.claimed_revision = claimed.revision
        self.unreadable: set[str] = set()
        self.groups: dict[str, RunningGroup] = {}
        self.pending = ShardPending()
        self._writer = ShardWriter(store, claimed, lambda: on_fenced(self))
        self._store = store
        self._policies = policies
        self._write_timeout_sec = write_timeout_sec
        self._now_ms = now_ms
        self._totals = totals
        self._metrics = metrics
        self._lag = lag
        self._check_record = check_record
        self._targets = targets
        self._share_room = share_room
        self._ending: set[asyncio.Task[None]] = set()
        self._leftover_members: list[str] = []
        self._tasks = TaskOwner()

    async def load(self) -> None:
        """Read the groups and what is pending as the previous coordinator stored them. Raises `StoreError`.

        A group whose record cannot be read is listed in `unreadable`, and stays as it is.
        """
        groups = await self._store.range(keys.groups(self.shard))
        members = await self._store.range(keys.shard_members(self.shard))
        pending = await self._store.range(keys.shard_pending_offsets(self.shard))
        # From here on nothing fails that would be done again.
        self._add_groups(groups, members)
        await self._add_pending(pending)
        for running in self.groups.values():
            running.begin()
        if self._leftover_members:
            # Of a group that was converted when its coordinator died.
            self._tasks.spawn(self._delete_leftover(), f"members left over in shard {self.shard}")

    async def _delete_leftover(self) -> None:
        # Nothing is awaited between the look at the groups and the writer's queue.
        gone = [key for key in self._leftover_members if not self._is_member(key)]
        try:
            await self.write_patiently([Delete(key) for key in gone])
        except KafkaError as problem:
            logger.info("members are left over", extra={"problem": quoted(str(problem), 500)})

    def _is_member(self, key: str) -> bool:
        """True if a client has joined meanwhile under the id of the member that was left over."""
        group_id, member_id = keys.group_and_member(key)
        running = self.groups.get(group_id)
        group = None if running is None else running.group
        return group is not None and not isinstance(group, Group) and member_id in group.members

    def _add_groups(self, stored: Snapshot, members: Snapshot) -> None:
        loaded = load_groups(stored, members, self._policies, self._now_ms())
        self.unreadable |= loaded.unreadable
        for one in loaded.groups:
            running = self._run(one.group, in_store=InStore.YES)
            running.stored.is_complete = False
            running.stored.has_shares = not isinstance(one.group, ShareGroup)
            running.member_bytes = one.member_bytes
            running.stored.set_record(one.record_bytes + sum(one.member_bytes.values()))
        self._leftover_members = loaded.leftover_members

    async def _add_pending(self, stored: Snapshot) -> None:
        async for item in in_turns(stored.items, _TRANSACTIONS_PER_TURN):
            try:
                transaction = keys.group_and_producer(item.key)
            except ValueError:
                logger.warning("a key is that of no pending offsets", extra={"key": quoted(item.key)})
                continue
            try:
                pending = decode_pending_offsets(item.key, item.value)
            except CorruptDataError as problem:
                logger.error("pending offsets cannot be read", extra={"problem": quoted(str(problem), 500)})
                self.pending.unreadable.add(transaction)
                continue
            self.change_pending([Change(transaction, None, pending)])

    def change_pending(self, changes: Sequence[Change]) -> None:
        """Make the changes in memory; their writes are queued before anything else runs."""
        self.pending.apply(changes)
        self._count_pending(changes)

    def undo_pending(self, changes: Sequence[Change], problem: WriteFailedError) -> None:
        """Take the changes back if it is known that nothing of their write took effect."""
        if not problem.durable_count and not isinstance(problem, WriteInDoubtError):
            self.pending.undo(changes)
            self._count_pending(changes)

    def _count_pending(self, changes: Iterable[Change]) -> None:
        for change in changes:
            group_id, producer_id = change.transaction
            running = self.groups.get(group_id)
            if running is not None:
                size = reserved_bytes(group_id, self.pending.of(change.transaction))
                running.stored.set_pending(producer_id, size)

    @contextmanager
    def commit_in_flight(self, running: RunningGroup) -> Iterator[None]:
        """For the time of a write that may give the group its record: the group stays until then."""
        running.commits_in_flight += 1
        try:
            yield
        except (WriteInDoubtError, asyncio.CancelledError):
            running.note_indeterminate_record()
            raise
        finally:
            running.commits_in_flight -= 1
            if running.is_unused:
                self.remove(running)

    def create(self, group_id: str) -> RunningGroup:
        """Add a new, empty group."""
        return self._run(Group(group_id, self._policies.classic, self._now_ms()), in_store=InStore.NO)

    def create_consumer(self, group_id: str) -> RunningGroup:
        """Add a new, empty group of the consumer protocol."""
        return self._run(self._new_consumer(group_id), in_store=InStore.NO)

    def create_share(self, group_id: str) -> RunningGroup:
        """Add a new, empty share group."""
        group = ShareGroup(group_id, self._policies.share(group_id), self._now_ms())
        return self._run(group, in_store=InStore.NO)

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._policies.consumer(group_id), self._now_ms())

    def replace_empty(self, running: RunningGroup, *, by_consumer: bool) -> None:
        """Make an empty group one of the other type; its offsets stay."""
        group_id = running.group.group_id
        if by_consumer:
            running.replace(self._new_consumer(group_id))
        else:
            running.replace(Group(group_id, self._policies.classic, self._now_ms()))

    async def upgrade(self, running: RunningGroup, check: Callable[[ConsumerGroup], None]) -> None:
        """Make a classic group a consumer group of the same members; its offsets stay. `check` may refuse that.

        The group may be another one when this returns, if the members changed it meanwhile. Raises `KafkaError`.
        """
        classic = running.group
        assert isinstance(classic, Group)
        policy = self._policies.consumer(classic.group_id)

        def is_current() -> bool:
            return self.has(running) and running.group is classic

        consumer = await consumer_group_of(self._targets.topics, classic, policy, is_current, self._now_ms)
        if consumer is None:
            return
        check(consumer)
        answers = end_classic(classic, self._now_ms())
        running.replace(consumer)
        running.notify(Converted(now_ms=self._now_ms(), answers=answers))
        # Before any write that depends on it comes that of the members, which waits as long as it takes.
        running.in_store = InStore.YES

    async def store_downgraded(self, running: RunningGroup, downgraded: Downgraded) -> None:
        """See `GroupHome`. The members' own keys mean nothing once the record is that of a classic group."""
        group_id = running.group.group_id
        put = Put(keys.group(group_id), encode_checked(group_id, downgraded.record))
        removed = {keys.group_member(group_id, one) for one in downgraded.removed}
        removed |= running.member_bytes.keys()
        running.member_bytes.clear()
        if self.has(running):
            running.stored.set_record(stored_size(put.key, put.value))
        await self.write_patiently([put, *(Delete(key) for key in sorted(removed))])

    def has(self, running: RunningGroup) -> bool:
        """True if it is still the group of its id."""
        return self.groups.get(running.group.group_id) is running

    async def delete_group(self, running: RunningGroup) -> None:
        """Delete a dead group's offsets and record from the store; if that fails, the group is restored.

        What is pending is dropped with it, as in Kafka: the transactions end without these offsets. The record is
        deleted last: while it exists, any coordinator of the group can retry. Raises `KafkaError`.
        """
        group_id = running.group.group_id
        try:
            await self.flush()  # Commits that were accepted while the group was alive.
            if isinstance(running.group, ShareGroup):
                await self._targets.delete_starts(running, self.flush, self.write)
            offsets = await read_offsets(self._store, group_id)
            deletions = [Delete(keys.group_offset(group_id, topic, index)) for topic, index in offsets]
            dropped = [Delete(keys.pending_offsets(*one)) for one in self.pending.transactions_of(group_id)]
            await self.write([*deletions, *dropped, Delete(keys.group(group_id))])
        except KafkaError:
            if self.has(running):
                self._restore(running)
            raise
        self.pending.remove_group(group_id)
        self._remove_lag(running)
        self.remove(running)

    async def write(self, operations: Sequence[Operation | ConditionalPut]) -> None:
        """Make the operations durable, in the order of the calls. Raises `WriteFailedError` (`ShardWriter.write`)."""
        await self._writer.write(operations, self._write_timeout_sec)

    async def write_patiently(self, operations: Sequence[Operation]) -> int:
        """The same without a time limit; returns the store's revision of the last operation.

        Raises `KafkaError` NOT_COORDINATOR.
        """
        return await self._writer.write(operations, None)

    async def delete_offsets(
        self, running: RunningGroup, partitions: Iterable[TopicPartition], *, pending_too: bool = False
    ) -> None:
        """Delete the group's offsets of these partitions. Raises `KafkaError`."""
        stored, group_id = running.stored, running.group.group_id
        wanted = set(partitions)
        deleted = sorted(one for one in wanted if stored.may_have(one))
        removed = stored.remove(deleted)
        changes = self.pending.without(group_id, wanted) if pending_too else []
        self.change_pending(changes)
        dropped = [change.operation() for change in changes]
        try:
            await self.write(
                [*dropped, *(Delete(keys.group_offset(group_id, *partition)) for partition in deleted)]
            )
        except WriteFailedError as problem:
            self.undo_pending(changes, problem)
            if self.has(running):
                running.stored.put_back(removed)
            raise
        self._notify_deleted(running, deleted)

    async def flush(self) -> None:
        """Wait until all earlier writes are durable. Raises `KafkaError`."""
        await self.write([])

    def remove(self, running: RunningGroup) -> None:
        """Remove the group from memory and stop its timer."""
        if self.has(running):
            del self.groups[running.group.group_id]
        for task in running.stop():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def notify_committed(
        self, running: RunningGroup, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Update the group's lag by offsets that are durable, unless the group was removed meanwhile."""
        if self._lag is not None and self.has(running):
            self._lag.committed(running.group.group_id, offsets)

    def _notify_deleted(self, running: RunningGroup, partitions: Iterable[TopicPartition]) -> None:
        if self._lag is not None:
            self._lag.remove_offsets(running.group.group_id, partitions)

    def unload(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR, and remove all groups from memory."""
        for running in tuple(self.groups.values()):
            running.notify(Unload(now_ms=self._now_ms()))
            self._remove_lag(running)
            self.remove(running)

    async def close(self) -> None:
        """Unload the groups, cancel the writes in flight and wait for the tasks."""
        self.unload()
        await self._tasks.close()
        await self._writer.close()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _remove_lag(self, running: RunningGroup) -> None:
        if self._lag is not None:
            self._lag.remove_group(running.group.group_id)

    def _restore(self, running: RunningGroup) -> None:
        """Start the group again from its record after a failed deletion.

        The deletion may have happened, or may happen yet: the next commit writes the record again.
        """
        stored, running.stored = running.stored, StoredGroup(self._totals.stored)
        self.remove(running)
        group = empty_again(running.group, self._policies, self._now_ms())
        self._run(group, in_store=InStore.MAYBE).stored = stored

    def _run(self, group: AnyGroup, *, in_store: InStore) -> RunningGroup:
        running = RunningGroup(
            group,
            self._now_ms,
            self,
            self._totals,
            self._metrics,
            in_store=in_store,
        )
        self.groups[group.group_id] = running
        return running

    async def store_changes(self, running: RunningGroup, changes: StoreChanges) -> None:
        """See `GroupHome`."""
        operations = operations_of(running.group.group_id, changes)
        if self.has(running):
            members_bytes = count_members(running.member_bytes, operations)
            running.stored.set_record(MODERN_GROUP_BYTES + members_bytes)
        await self.write_patiently(operations)

    async def assign(self, running: RunningGroup, group: ConsumerGroup | ShareGroup) -> Assigned:
        """See `GroupHome`."""
        return await self._targets.compute(group)

    async def initialize_starts(self, running: RunningGroup, partitions: Assignment) -> StartsInitialized:
        """See `GroupHome`. Raises `KafkaError` NOT_COORDINATOR."""
        account = partial(self.account_shares, running)
        return await self._targets.initialize_starts(
            running, partitions, self.flush, self.write_patiently, account
        )

    def account_shares(self, running: RunningGroup, size: int) -> int:
        """Count this as what the share group has of its partitions; returns how many bytes more it may have."""
        if not self.has(running):
            return 0
        running.stored.set_shares(size)
        return self._share_room(running.stored)

    async def store_group(self, running: RunningGroup, record: GroupRecord) -> None:
        """See `GroupHome`."""
        group_id = running.group.group_id
        key, value = keys.group(group_id), encode_checked(group_id, record)
        size, before = stored_size(key, value), running.stored.record_bytes
        self._check_record(size - before)
        if self.has(running):
            running.stored.set_record(max(size, before))
        await self.write([Put(key, value)])
        if self.has(running):
            running.stored.set_record(size)
