"""TxnOffsetCommit: offsets that wait in the group for the end of a producer's transaction.

All offsets of a group in one transaction are one value in the store, which each further commit replaces. Only the
group's coordinator writes it, and a marker of the transaction takes it away (group_markers.py). Behaviour: Kafka's
GroupCoordinatorService.commitTransactionalOffsets and OffsetMetadataManager (4.1).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from kafscale.cluster.stored_topics import stored_topics
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.pending_offsets import MAX_PENDING_OFFSETS_BYTES
from kafscale.formats.topic_record import decode_topic_record
from kafscale.groups.effects import Decided
from kafscale.groups.events import Commit
from kafscale.groups.group_puts import record_put
from kafscale.groups.offsets import TopicPartition
from kafscale.groups.participation import Participation
from kafscale.groups.pending import Transaction, Verification, reserved_bytes
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shard_writer import WriteFailedError
from kafscale.groups.shards import GroupShards
from kafscale.groups.stored_bytes import KEY_BYTES
from kafscale.groups.stored_limits import check_commit_bytes, refuse_commit
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Put
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Who commits: a producer for its transaction, and the member of the group whose progress it is.

    `adds_group`: the commit itself adds the group to the transaction (TV2). `knows_abortable`: the client knows
    TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    group_instance_id: str | None
    generation: int
    adds_group: bool
    knows_abortable: bool


class TransactionalCommits:
    """Of the groups that this broker coordinates. `now_ms`: see `GroupCoordinator`."""

    def __init__(
        self,
        shards: GroupShards,
        store: MetadataStore,
        participation: Participation,
        metrics: GroupMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._store = store
        self._participation = participation
        self._metrics = metrics
        self._now_ms = now_ms

    async def commit(
        self,
        shard: GroupShard,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        find_group: Callable[[], RunningGroup | None],
    ) -> ErrorCode:
        """NONE once all offsets are durable, and pending. Raises `KafkaError`.

        `find_group`: the group, which it creates if the committer may; called once the transaction is verified.
        """
        began = time.perf_counter()
        transaction = (group_id, committer.producer_id)
        with shard.pending.verification(transaction) as verification:
            await self._verify(shard, transaction, committer)
            if verification.is_over and committer.adds_group:
                # By the marker of the transaction before, which the addition waited for: of the next it says nothing.
                verification.is_over = False
                await self._verify(shard, transaction, committer)
            values = await self._values(group_id, offsets)
            # Nothing is awaited between here and the writer's queue: a marker may come, the member be removed.
            running = find_group()
            if running is None:
                return ErrorCode.ILLEGAL_GENERATION
            with shard.commit_in_flight(running):
                error_code = self._decide(running, committer)
                if error_code is not ErrorCode.NONE or not values:
                    return error_code
                _check_verified(verification)
                await self._write(shard, running, committer, values)
        self._metrics.commits += len(values)
        self._metrics.commit_duration.observe(time.perf_counter() - began)
        return ErrorCode.NONE

    async def _verify(self, shard: GroupShard, transaction: Transaction, committer: Committer) -> None:
        """Ask the transaction's record, unless offsets of this group are in the transaction already."""
        group_id, producer_id = transaction
        if transaction in shard.pending.unreadable:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"pending offsets of group '{quoted(group_id)}' and producer {producer_id} cannot be read",
            )
        pending = shard.pending.of(transaction)
        if pending is not None and pending.transactional_id == committer.transactional_id:
            if pending.producer_epoch > committer.producer_epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"epoch {committer.producer_epoch} of producer {producer_id} is older than "
                    f"{pending.producer_epoch}, which has offsets pending",
                )
            if pending.producer_epoch == committer.producer_epoch:
                return
        await self._participation.check(
            committer.transactional_id,
            producer_id,
            committer.producer_epoch,
            group_id=group_id,
            adds=committer.adds_group,
            knows_abortable=committer.knows_abortable,
        )

    def _decide(self, running: RunningGroup, committer: Committer) -> ErrorCode:
        reply_id = running.next_reply_id()
        event = Commit(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=committer.member_id,
            group_instance_id=committer.group_instance_id,
            generation=committer.generation,
            is_transactional=True,
        )
        return cast(Decided, running.decide(event, reply_id)).error_code

    async def _values(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, bytes]:
        """The stored bytes of each, with the topics as the store has them now: the view may lag behind."""
        check_commit_bytes(len(offsets) * (KEY_BYTES + len(keys.group_offsets(group_id))))
        ids = {topic: committed.topic_id for (topic, _), committed in offsets.items()}
        try:
            found = await stored_topics(self._store, ids)
            ids |= {topic: decode_topic_record(one.key, one.value).topic_id for topic, one in found.items()}
        except (StoreError, CorruptDataError) as problem:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500)) from problem
        values: dict[TopicPartition, bytes] = {}
        commit_bytes = 0
        async for place, committed in in_turns(offsets.items()):
            values[place] = encode_committed_offset(replace(committed, topic_id=ids[place[0]]))
            commit_bytes += len(place[0]) + len(values[place])
            check_commit_bytes(commit_bytes)
        return values

    async def _write(
        self,
        shard: GroupShard,
        running: RunningGroup,
        committer: Committer,
        values: Mapping[TopicPartition, bytes],
    ) -> None:
        group_id = running.group.group_id
        transaction = (group_id, committer.producer_id)
        change = shard.pending.added(
            transaction, committer.transactional_id, committer.producer_epoch, values
        )
        operation = change.operation()
        assert isinstance(operation, Put), "offsets were added"
        if len(operation.value) > MAX_PENDING_OFFSETS_BYTES:
            raise refuse_commit(
                f"a transaction's offsets of one group would take {len(operation.value)} bytes, at most "
                f"{MAX_PENDING_OFFSETS_BYTES} can be stored"
            )
        growth = reserved_bytes(group_id, change.after) - running.stored.pending(committer.producer_id)
        totals, shard_count = self._shards.totals.stored, self._shards.shard_count
        self._shards.limits.check_commit(running.stored, totals, shard_count, growth)
        shard.change_pending([change])
        try:
            await shard.write([*record_put(running), operation])
        except WriteFailedError as problem:
            if problem.durable_count:
                running.note_indeterminate_record()
            shard.undo_pending([change], problem)
            raise
        running.in_store = InStore.YES


def _check_verified(verification: Verification) -> None:
    if verification.is_over:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "the transaction ended before its offsets were in the group"
        )
