"""The part of a rebuild that comes from a snapshot of the metadata store, beside the bucket's. Pure.

The bucket says what is published, and a snapshot is older than that: partition records never come from it, but
what they say of epochs and offsets is a floor. What happened between the snapshot and the loss is not known, so
everything that counts upwards goes on well above it. See docs/decisions/0028-backups.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from kafscale.formats.any_group_record import AnyGroupRecord, decode_any_group
from kafscale.formats.committed_offset import (
    CommittedOffset,
    decode_committed_offset,
    encode_committed_offset,
)
from kafscale.formats.consumer_group_record import (
    ConsumerGroupRecord,
    encode_consumer_group,
)
from kafscale.formats.export_records import encode_export_record
from kafscale.formats.group_record import GroupRecord, encode_group_record
from kafscale.formats.marker_record import encode_marker_record
from kafscale.formats.share_group_record import ShareGroupRecord, encode_share_group
from kafscale.formats.topic_record import encode_group_shard_record, encode_retired_epoch
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.tools.recovery.bucket_plan import BucketPlan, Restored, TopicPlan
from kafscale.tools.recovery.plan import (
    PASSED_OVER_EPOCHS,
    KnownPartition,
    PartitionPlan,
    empty_partition,
)
from kafscale.tools.recovery.snapshot_contents import SnapshotContents

ENTRY_PREFIXES: Final = (
    keys.RETIRED,
    keys.GROUP_SHARDS,
    keys.GROUPS,
    keys.GROUP_MEMBERS,
    keys.GROUP_OFFSETS,
    keys.EXPORTS,
    keys.USERS,
    keys.QUOTAS,
    keys.GROUP_CONFIGS,
    keys.ACLS,
    keys.TRANSACTIONS,
    keys.GROUP_MARKERS,
    keys.PENDING_OFFSETS,
    keys.SHARE_STARTS,
    keys.SHARE_STATES,
)
"""The prefixes of `Restored.entries` in the metadata store."""

_MAX_INT32: Final = 2**31 - 1

_USED_UP_EPOCH: Final = 2**15 - 2
"""Of a producer id that is given out no more (Kafka's isProducerEpochExhausted)."""


def with_snapshot(plan: BucketPlan, contents: SnapshotContents, now_ms: int) -> BucketPlan:
    """The plan with what the snapshot adds. `plan` was made with `contents.known()`, of all topics.

    `now_ms`: Unix milliseconds, when what expires begins to.
    """
    found = {topic.name: topic for topic in plan.topics}
    topics: list[TopicPlan] = []
    notes: list[str] = []
    known = contents.known()
    for name in sorted({*found, *contents.topics}):
        topic, note = _restore_topic(found.get(name, TopicPlan(name=name, partitions=())), contents, known)
        if topic is not None:
            topics.append(topic)
        if note:
            notes.append(f"topic {name!r} {note}")
    restored = Restored(
        key=contents.key,
        created_ms=contents.header.created_ms,
        revision=contents.header.revision,
        next_producer_id=contents.next_producer_id,
        levels=contents.levels,
        entries=_entries(topics, contents, now_ms),
        journals=contents.journals,
        markers=contents.partition_markers,
        problems=_problems(contents, plan.namespace, plan.cluster_id),
        notes=tuple(notes),
    )
    return replace(
        plan,
        cluster_id=plan.cluster_id or contents.header.cluster_id,
        topics=tuple(topics),
        restored=restored,
    )


def _restore_topic(
    of_bucket: TopicPlan, contents: SnapshotContents, known: Callable[[str, int], KnownPartition | None]
) -> tuple[TopicPlan | None, str]:
    """The plan for a topic, of which the bucket may have nothing, and what is to be said of it."""
    if of_bucket.problem:
        return of_bucket, ""
    name, found = of_bucket.name, of_bucket.partitions
    record = contents.topics.get(name)
    is_deleted = record.state is TopicState.DELETING if record is not None else name in contents.retired
    if is_deleted and max((one.highest_epoch for one in found), default=-1) > contents.highest_epoch(name):
        return of_bucket, "was deleted and created again: it gets a new id and the default configs"
    if record is None and is_deleted:
        return None, "had been deleted: what lies in the bucket is the rest of that, and stays out"
    if record is None:
        return of_bucket, "was made after the snapshot: it gets a new id and the default configs"
    if any(one.is_of_later_topic for one in found):
        return of_bucket, "was created again after the snapshot: it gets a new id and the default configs"
    missing = range(len(found), record.partition_count)
    partitions = (*found, *(empty_partition(name, index, known(name, index)) for index in missing))
    topic = TopicPlan(
        name=name, partitions=partitions, record=replace(record, partition_count=len(partitions))
    )
    return topic, _note(record, found, contents)


def _note(record: TopicRecord, found: tuple[PartitionPlan, ...], contents: SnapshotContents) -> str:
    if record.state is TopicState.DELETING:
        return "was being deleted: that goes on"
    if not found and any(
        known.log_end_offset > known.log_start_offset
        for (name, _), known in contents.partitions.items()
        if name == record.name
    ):
        return "had records, and nothing of them is in the bucket: it was deleted since, or they are lost"
    if len(found) > record.partition_count:
        return f"had {record.partition_count} partitions, and has {len(found)} now"
    return ""


def _entries(topics: Iterable[TopicPlan], contents: SnapshotContents, now_ms: int) -> dict[str, bytes]:
    """Everything else that goes into the store, by key.

    Groups come back without members, who join again, in a generation or epoch above all that they can have had. The
    time after which groups and committed offsets expire begins again with `now_ms` (Unix milliseconds).
    """
    by_name = {topic.name: topic for topic in topics}
    entries = {
        keys.retired(name): encode_retired_epoch(epoch + PASSED_OVER_EPOCHS)
        for name, epoch in contents.retired.items()
        if name not in by_name  # A topic's own partition records say so.
    }
    for key, shard in contents.group_shards.items():
        epoch = shard.coordinator_epoch + PASSED_OVER_EPOCHS
        entries[key] = encode_group_shard_record(replace(shard, coordinator_epoch=epoch, sequence=0))
    for key, group in contents.groups.items():
        entries[key] = _without_members(group, now_ms)
    for key, committed in contents.offsets.items():
        name, _ = keys.offset_topic_and_partition(key)
        if _is_of(by_name.get(name), committed):
            entries[key] = encode_committed_offset(_renewed(committed, now_ms))
    for key, record in contents.export_records.items():
        entries[key] = encode_export_record(replace(record, epoch=record.epoch + PASSED_OVER_EPOCHS))
    for key, value in contents.export_progress.items():
        topic = by_name.get(keys.export_topic(key))
        if topic is None or topic.record is not None:
            entries[key] = value
    kept = contents.quotas | contents.group_configs | contents.users | contents.acls
    return entries | kept | _of_transactions(contents, now_ms) | _of_share_groups(by_name.values(), contents)


def _of_transactions(contents: SnapshotContents, now_ms: int) -> dict[str, bytes]:
    """The transactional ids, without transactions, and the offsets of those that had been committed.

    Epochs that were given out since are not known, so the next InitProducerId is to get another producer id: that of
    a record whose epochs are used up. Offsets of a transaction that was open come back as if it was aborted.
    """
    entries = {
        key: encode_transaction_record(_ended(record, now_ms))
        for key, record in contents.transactions.items()
    }
    for key, marker in contents.group_markers.items():
        pending_key = keys.pending_offsets(*keys.group_and_producer(key))
        pending = contents.pending_offsets.get(pending_key)
        if marker.commit and pending is not None:
            entries[key] = encode_marker_record(marker)
            entries[pending_key] = pending
    return entries


def _of_share_groups(topics: Iterable[TopicPlan], contents: SnapshotContents) -> dict[str, bytes]:
    """Starts and states of topics that come back as themselves: what was acknowledged since is delivered again.

    Their epochs stay: no broker that knows later ones is left.
    """
    topic_ids = {topic.record.topic_id for topic in topics if topic.record is not None}
    return {
        key: value
        for key, value in (contents.share_starts | contents.share_states).items()
        if keys.share_partition(key).topic_id in topic_ids
    }


def _ended(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    return TransactionRecord(
        producer_id=record.producer_id,
        producer_epoch=_USED_UP_EPOCH,
        timeout_ms=record.timeout_ms,
        state=TransactionState.EMPTY,
        transaction_version=record.transaction_version,
        updated_ms=now_ms,
    )


def _is_of(topic: TopicPlan | None, committed: CommittedOffset) -> bool:
    """True if the offset means this topic: of others it means nothing any more."""
    return topic is not None and topic.record is not None and topic.record.topic_id == committed.topic_id


def _without_members(group: AnyGroupRecord, now_ms: int) -> bytes:
    if isinstance(group, ConsumerGroupRecord):
        epoch = min(group.group_epoch + PASSED_OVER_EPOCHS, _MAX_INT32)
        return encode_consumer_group(ConsumerGroupRecord(epoch, now_ms))
    if isinstance(group, ShareGroupRecord):
        epoch = min(group.group_epoch + PASSED_OVER_EPOCHS, _MAX_INT32)
        return encode_share_group(ShareGroupRecord(epoch, now_ms))
    return encode_group_record(
        GroupRecord(
            generation=min(group.generation + PASSED_OVER_EPOCHS, _MAX_INT32),
            state_since_ms=now_ms,
            protocol_type=group.protocol_type,
        )
    )


def _renewed(committed: CommittedOffset, now_ms: int) -> CommittedOffset:
    """As if it were committed now, so that it does not expire for what passed since the snapshot."""
    expires_ms = committed.expire_timestamp_ms
    if expires_ms is not None:
        expires_ms += max(0, now_ms - committed.commit_timestamp_ms)
    at_ms = max(now_ms, committed.commit_timestamp_ms)
    return replace(committed, commit_timestamp_ms=at_ms, expire_timestamp_ms=expires_ms)


def is_same_entry(key: str, held: bytes, planned: bytes) -> bool:
    """True if an earlier run wrote what is held: times may differ. Raises `CorruptDataError`."""
    if held == planned:
        return True
    if key.startswith(keys.GROUPS):
        return _timeless_group(key, held) == _timeless_group(key, planned)
    if key.startswith(keys.GROUP_OFFSETS):
        return _timeless_offset(key, held) == _timeless_offset(key, planned)
    if key.startswith(keys.TRANSACTIONS):
        return _timeless_transaction(key, held) == _timeless_transaction(key, planned)
    return False


def _timeless_group(key: str, value: bytes) -> AnyGroupRecord:
    return replace(decode_any_group(key, value), state_since_ms=0)


def _timeless_offset(key: str, value: bytes) -> CommittedOffset:
    return replace(decode_committed_offset(key, value), commit_timestamp_ms=0, expire_timestamp_ms=None)


def _timeless_transaction(key: str, value: bytes) -> TransactionRecord:
    return replace(decode_transaction_record(key, value), updated_ms=0)


def _problems(contents: SnapshotContents, namespace: str, cluster_id: str | None) -> tuple[str, ...]:
    """Why the snapshot cannot be used for this namespace, whose marker names `cluster_id` (None: no marker)."""
    header = contents.header
    problems = []
    if cluster_id not in (None, header.cluster_id):
        problems.append(
            f"snapshot {contents.key} is of cluster {header.cluster_id}, and namespace {namespace!r} of the object "
            f"store belongs to cluster {cluster_id}: name a snapshot of that one"
        )
    if header.namespace != namespace:
        problems.append(
            f"snapshot {contents.key} is of namespace {header.namespace!r}, and KAFSCALE_S3_NAMESPACE is "
            f"{namespace!r}: name a snapshot of that one"
        )
    if contents.unknown:
        problems.append(
            f"snapshot {contents.key} holds {len(contents.unknown)} keys that this release does not know, "
            f"{sorted(contents.unknown)[0]!r} for one: recover with the release that took it"
        )
    return tuple(problems)
