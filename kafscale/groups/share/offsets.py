"""Where share groups read, for administrators: described, altered and deleted by the group's coordinator.

The starts of a group are altered and deleted only while it has no members. That is looked at after they were read,
and nothing is awaited from there to the writer's queue. A member that joins later gets partitions only after their
starts were looked for once more, under the group's lock and behind all earlier writes. The leaders of the partitions
watch the starts: what they have in memory of the group ends with the alteration.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import StoreError
from kafscale.formats.share_start_record import AS_CONFIGURED, MAX_CHANGED_BY_BYTES
from kafscale.formats.share_state_record import ShareStateRecord
from kafscale.groups.group_puts import record_put
from kafscale.groups.lag import LogEndOffset
from kafscale.groups.log_end_offsets import stored_end_offsets
from kafscale.groups.modern.admission import Admission
from kafscale.groups.modern.assignment import TopicIdPartition
from kafscale.groups.modern.stored_group import MODERN_GROUP_BYTES
from kafscale.groups.offsets import TopicPartition
from kafscale.groups.request_limits import check_group_id
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.coordinator import check_type, not_found
from kafscale.groups.share.lag import lag_of
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.share.stored_size import fitting, group_size
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings
from kafscale.share.state.operations import Change, alter, delete_all
from kafscale.share.state.stored_group import StoredShareGroup, read_share_group

UNKNOWN_LAG: Final = -1


@dataclass(frozen=True, slots=True)
class DescribedStart:
    """How far a share group is in a partition, as the metadata store has it.

    `start_offset`: the first record that is not finished; `AS_CONFIGURED` before the first fetch. `leader_epoch`: of
    the leader that has written that, 0 before. `lag`: the records that are not finished; `UNKNOWN_LAG` before the
    first fetch since the start was set, as in Kafka.
    """

    start_offset: int = AS_CONFIGURED
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG


NOT_STARTED: Final = DescribedStart()
"""Of a partition that the group does not read."""


class ShareOffsets:
    """Of the groups that this broker coordinates.

    Every method raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and COORDINATOR_NOT_AVAILABLE if
    the metadata store does not answer. `log_end_offset`: of partitions that this broker leads.
    """

    def __init__(
        self,
        shards: GroupShards,
        store: MetadataStore,
        view: ClusterView,
        settings: Settings,
        now_ms: Callable[[], int],
        log_end_offset: LogEndOffset,
    ) -> None:
        self._shards = shards
        self._store = store
        self._view = view
        self._admission = Admission(shards, settings)
        self._now_ms = now_ms
        self._log_end_offset = log_end_offset

    async def describe(self, group_id: str) -> Mapping[TopicIdPartition, DescribedStart]:
        """The partitions that have a start. None for a group that is not there, or of another type, as in Kafka."""
        self._shards.shard(group_id)
        stored = await self._read(group_id)
        names = {
            place: (topic.name, place.partition)
            for place in stored.states
            if (topic := self._view.topic_by_id(place.topic_id)) is not None
        }
        ends = await self._end_offsets(names.values())
        described = {}
        for place, start in stored.starts.items():
            state, name = stored.states.get(place), names.get(place)
            if state is None:
                one = DescribedStart(start.start_offset)
            else:
                end = None if name is None else ends.get(name)
                one = DescribedStart(state.start_offset, state.leader_epoch, _lag(state, end))
            described[place.topic_id, place.partition] = one
        return described

    async def _end_offsets(self, wanted: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """As of now where this broker leads, of the partition's record elsewhere."""
        local = {one: end for one in wanted if (end := self._log_end_offset(*one)) is not None}
        try:
            return local | await stored_end_offsets(self._store, set(wanted) - local.keys())
        except StoreError as problem:
            raise _unavailable(problem) from problem

    async def alter(
        self, group_id: str, offsets: Mapping[TopicIdPartition, int], principal: str
    ) -> Mapping[TopicIdPartition, KafkaError]:
        """Set these start offsets; returns those that were refused, once all others are durable.

        A group that is not there is created, empty. Raises INVALID_GROUP_ID, GROUP_ID_NOT_FOUND for a group of
        another type, NON_EMPTY_GROUP.
        """
        check_share_group_id(group_id)
        shard, running = self._shards.shard(group_id), self._admission.find(group_id)
        if running is not None:
            _check_empty(running)
        refused = {one: _illegal(offset) for one, offset in offsets.items() if offset < AS_CONFIGURED}
        wanted = {SharePartitionId(group_id, *one): offsets[one] for one in offsets.keys() - refused.keys()}
        if not wanted:
            return refused
        if running is None:
            check_group_id(group_id)
            self._admission.check_new_group()
            running = shard.create_share(group_id)
        with shard.commit_in_flight(running):
            async with self._stored(shard, running) as stored:
                unreadable = set(stored.unreadable)
                for place in tuple(wanted):
                    if keys.share_start(place) in unreadable or keys.share_state(place) in unreadable:
                        refused[place.topic_id, place.partition] = _unreadable()
                        del wanted[place]
                await self._write(shard, running, stored, wanted, principal)
        return refused

    async def _write(
        self,
        shard: GroupShard,
        running: RunningGroup,
        stored: StoredShareGroup,
        wanted: Mapping[SharePartitionId, int],
        principal: str,
    ) -> None:
        if not wanted:
            return
        change = Change(self._now_ms(), principal.encode()[:MAX_CHANGED_BY_BYTES].decode(errors="ignore"))
        try:
            changes = alter(wanted, stored.starts, change)
        except ValueError as problem:
            raise KafkaError(ErrorCode.INVALID_REQUEST, quoted(str(problem), 500)) from problem
        size = group_size(stored)
        fit, growth = fitting(changes.starts, stored.starts, shard.account_shares(running, size))
        if len(fit) < len(wanted):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"there is room for the offsets of {len(fit)} of these {len(wanted)} partitions: "
                "KAFSCALE_GROUP_OFFSETS_MAX_BYTES is the limit of a group, KAFSCALE_GROUPS_STORED_MAX_BYTES of all",
            )
        shard.account_shares(running, size + growth)
        running.stored.set_record(max(running.stored.record_bytes, MODERN_GROUP_BYTES))
        await shard.write([*record_put(running), *changes.operations])
        running.in_store = InStore.YES

    async def delete(self, group_id: str, topic_ids: Collection[uuid.UUID]) -> frozenset[uuid.UUID]:
        """Delete the starts and states of these topics, once that is durable; returns the topics that had any.

        Raises INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        check_share_group_id(group_id)
        shard, running = self._shards.shard(group_id), self._admission.find(group_id)
        if running is None:
            raise not_found(group_id)
        _check_empty(running)
        async with self._stored(shard, running) as stored:
            starts = _of_topics(stored.start_keys, topic_ids)
            states = _of_topics(stored.state_keys, topic_ids)
            for operations in delete_all(starts, states):
                await shard.write(operations)
            left = group_size(await self._read(group_id))
            shard.account_shares(running, left)
        return frozenset(starts.values())

    @asynccontextmanager
    async def _stored(self, shard: GroupShard, running: RunningGroup) -> AsyncIterator[StoredShareGroup]:
        """The stored group, which has no members when the block begins; no other task writes its starts meanwhile."""
        async with running.starts_lock:
            await shard.flush()
            stored = await self._read(running.group.group_id)
            if not shard.has(running) or running.group.state is GroupState.DEAD:
                message = f"group {quoted(running.group.group_id)} is being deleted"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
            _check_empty(running)
            yield stored

    async def _read(self, group_id: str) -> StoredShareGroup:
        try:
            return await read_share_group(self._store, group_id)
        except StoreError as problem:
            raise _unavailable(problem) from problem


def check_share_group_id(group_id: str) -> None:
    """Raises `KafkaError` INVALID_GROUP_ID for the empty id, in Kafka's words."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")


def _check_empty(running: RunningGroup) -> None:
    group: ShareGroup = check_type(running)
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def _unreadable() -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "what is stored of the group in this partition cannot be read: delete its offsets of the topic first",
    )


def _illegal(offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"a start offset of {offset}: legal are 0 and more, and {AS_CONFIGURED} for share.auto.offset.reset",
    )


def _unavailable(problem: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500))


def _lag(state: ShareStateRecord, end_offset: int | None) -> int:
    return UNKNOWN_LAG if end_offset is None else lag_of(state, end_offset)


def _of_topics(share_keys: Sequence[str], topic_ids: Collection[uuid.UUID]) -> dict[str, uuid.UUID]:
    """Those of the keys that are of these topics, and which. Keys that no broker writes are passed over."""
    found = {}
    for key in share_keys:
        try:
            topic_id = keys.share_partition(key).topic_id
        except ValueError:
            continue
        if topic_id in topic_ids:
            found[key] = topic_id
    return found
