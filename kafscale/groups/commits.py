"""OffsetCommit: who may commit, how much, for which topics, and the outcome for each offset."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from kafscale.cluster.stored_topics import stored_topics
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.topic_record import decode_topic_record
from kafscale.groups.effects import Decided
from kafscale.groups.events import Commit
from kafscale.groups.group_puts import record_put
from kafscale.groups.offsets import TopicPartition
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shard_writer import ConditionChangedError, WriteFailedError
from kafscale.groups.shards import GroupShards
from kafscale.groups.stored_bytes import KEY_BYTES, stored_size
from kafscale.groups.stored_limits import check_commit_bytes
from kafscale.groups.topic_condition import ConditionalPut, TopicCondition
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Operation, Put
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

_ATTEMPTS: Final = 5

Offsets = Mapping[TopicPartition, CommittedOffset]


# The offsets that are encoded before the event loop has its turn: about a millisecond's worth.
_OFFSETS_PER_TURN: Final = 256


class PartlyCommittedError(KafkaError):
    """A commit of which the offsets in `stored` are durable, and the others may not be."""

    def __init__(self, problem: KafkaError, stored: frozenset[TopicPartition]) -> None:
        super().__init__(problem.code, problem.message)
        self.stored = stored


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A commit as it would be written.

    `keys` and `values` are the offsets'; `sizes`: the bytes of each in the store.
    """

    offsets: Offsets
    operations: list[Operation | ConditionalPut]
    keys: list[str]
    values: Mapping[TopicPartition, bytes]
    sizes: Mapping[TopicPartition, int]


class OffsetCommits:
    """Commits of the groups that this broker coordinates. `now_ms`: see `GroupCoordinator`."""

    def __init__(
        self,
        shards: GroupShards,
        store: MetadataStore,
        view: ClusterView,
        metrics: GroupMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._store = store
        self._view = view
        self._metrics = metrics
        self._now_ms = now_ms

    async def commit(
        self,
        shard: GroupShard,
        running: RunningGroup,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        offsets: Offsets,
        knows_member_epochs: bool = False,
    ) -> ErrorCode:
        """NONE once every offset is durable. Raises `KafkaError`; `PartlyCommittedError` if some of them are."""
        began = time.perf_counter()

        def decide() -> ErrorCode:
            reply_id = running.next_reply_id()
            event = Commit(
                now_ms=self._now_ms(),
                reply_id=reply_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation=generation,
                knows_member_epochs=knows_member_epochs,
            )
            return cast(Decided, running.decide(event, reply_id)).error_code

        with shard.commit_in_flight(running):
            error_code = await self._commit(shard, running, decide, offsets)
        if error_code is ErrorCode.NONE and offsets:
            self._metrics.commits += len(offsets)
            self._metrics.commit_duration.observe(time.perf_counter() - began)
        return error_code

    async def _commit(
        self, shard: GroupShard, running: RunningGroup, decide: Callable[[], ErrorCode], offsets: Offsets
    ) -> ErrorCode:
        """Retry while a topic changes, so that the offsets are written for the topics as they are then."""
        for attempt in range(1, _ATTEMPTS + 1):
            prepared = await self._prepare(running.group.group_id, offsets, is_repeated=attempt > 1)
            # Nothing is awaited between the decision and the writer's queue: the member might be removed meanwhile.
            error_code = decide()
            if error_code is not ErrorCode.NONE or not offsets:
                return error_code
            try:
                await self._write(shard, running, prepared)
                break
            except ConditionChangedError:
                if attempt == _ATTEMPTS:
                    raise
        return ErrorCode.NONE

    async def _prepare(self, group_id: str, offsets: Offsets, *, is_repeated: bool) -> _Prepared:
        check_commit_bytes(len(offsets) * (KEY_BYTES + len(keys.group_offsets(group_id))))
        offsets, topics = await self._for_topics_of_now(offsets, ask_for_all=is_repeated)
        operations: list[Operation | ConditionalPut] = []
        written_keys, values, sizes, commit_bytes = [], {}, {}, 0
        for number, (partition, committed) in enumerate(offsets.items(), 1):
            key, value = keys.group_offset(group_id, *partition), encode_committed_offset(committed)
            put, condition = Put(key, value), topics.get(partition[0])
            operations.append(put if condition is None else ConditionalPut(put, condition))
            written_keys.append(key)
            values[partition] = value
            sizes[partition] = stored_size(key, value)
            commit_bytes += sizes[partition]
            if number % _OFFSETS_PER_TURN == 0:
                check_commit_bytes(commit_bytes)
                await asyncio.sleep(0)
        check_commit_bytes(commit_bytes)
        return _Prepared(offsets, operations, written_keys, values, sizes)

    async def _for_topics_of_now(
        self, offsets: Offsets, *, ask_for_all: bool
    ) -> tuple[Offsets, Mapping[str, TopicCondition]]:
        """The offsets with the current ids of their topics, and the conditions of the commit, by topic.

        Topics are read from the store where the view does not have the id that the offsets came with, and all of
        them once the view has turned out to be stale.
        """
        ids = {topic: committed.topic_id for (topic, _), committed in offsets.items()}
        topics: dict[str, TopicCondition] = {}
        for topic, topic_id in ids.items():
            record = self._view.topic(topic)
            if not ask_for_all and record is not None and record.topic_id == topic_id:
                topics[topic] = TopicCondition(keys.topic(topic), topic_id, self._view.topic_revision(topic))
        unsettled = [topic for topic in ids if topic not in topics]
        if not unsettled:
            return offsets, topics
        try:
            found = await stored_topics(self._store, unsettled)
            stored_ids = {
                topic: decode_topic_record(item.key, item.value).topic_id for topic, item in found.items()
            }
        except (StoreError, CorruptDataError) as problem:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500)) from problem
        # The offset of a deleted topic is written as it came: it is of no use, and expires.
        topics |= {
            topic: TopicCondition(item.key, stored_ids[topic], item.mod_revision)
            for topic, item in found.items()
        }
        ids |= stored_ids
        of_now = {
            partition: committed
            if committed.topic_id == ids[partition[0]]
            else replace(committed, topic_id=ids[partition[0]])
            for partition, committed in offsets.items()
        }
        return of_now, topics

    async def _write(self, shard: GroupShard, running: RunningGroup, prepared: _Prepared) -> None:
        self._admit(running, prepared)
        overtaken = shard.pending.overtaken(running.group.group_id, prepared.values)
        shard.change_pending(overtaken)
        first = [*record_put(running), *(change.operation() for change in overtaken)]
        operations = [*first, *prepared.operations]
        try:
            await shard.write(operations)
        except WriteFailedError as problem:
            shard.undo_pending(overtaken, problem)
            durable = problem.durable_count - len(first)
            if problem.durable_count:
                running.note_indeterminate_record()
            if durable <= 0 or isinstance(problem, ConditionChangedError):
                raise
            raise PartlyCommittedError(problem, frozenset(list(prepared.offsets)[:durable])) from problem
        running.in_store = InStore.YES
        shard.notify_committed(running, prepared.offsets)

    def _admit(self, running: RunningGroup, prepared: _Prepared) -> None:
        """Count the commit as stored. Raises `KafkaError` to refuse all of it."""
        growth = running.stored.growth(prepared.sizes)
        totals, shard_count = self._shards.totals.stored, self._shards.shard_count
        self._shards.limits.check_commit(running.stored, totals, shard_count, growth)
        running.stored.put(prepared.sizes)
        if running.touched is not None:
            running.touched.update(prepared.keys)
        for committed in prepared.offsets.values():
            if committed.expire_timestamp_ms is not None:
                running.expiry_check_at_ms = min(running.expiry_check_at_ms, committed.expire_timestamp_ms)
