"""A rebuild's plan in words: a table for people, an object for programs. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafscale.metadata import keys
from kafscale.ops.report_text import section, table, time_text
from kafscale.tools.recovery.bucket_plan import BucketPlan, Restored, TopicPlan
from kafscale.tools.recovery.overlaps import Dropped
from kafscale.tools.recovery.plan import DamagedObject, Hole, PartitionPlan

NOT_IN_THE_BUCKET: Final = (
    "Topic ids: the topics get new ones.",
    "Topic configs: the defaults apply, retention.ms too, unless --config sets others.",
    "Topics without any object in the bucket, and partitions above the highest that has one.",
    "Consumer groups and committed offsets: groups start where auto.offset.reset says.",
    "Transactional ids: producers initialize them again. Transactions that are open in the log are aborted.",
    "Deleted records: those that lie in an object that was not deleted yet are back.",
)

SINCE_THE_SNAPSHOT: Final = (
    "Topics that were made since: they get new ids and the default configs, or those of --config.",
    "Configs that were changed since: they are as they were.",
    "Offsets that were committed since: consumers read again what they read since.",
    "Groups that were made since: they start where auto.offset.reset says.",
    "Topics and groups that were deleted since: they are back, the topics without records.",
    "Transactions: those that are open in the log are aborted, and producers initialize their ids again.",
    "Members of groups: they join again, and new generations begin.",
)

_MOST_TRANSACTIONS: Final = 10
"""Of a partition in the text."""

_COLUMNS: Final = (
    "TOPIC",
    "PARTITION",
    "SEGMENTS",
    "RECORDS",
    "BYTES",
    "LOG START",
    "LOG END",
    "LEADER EPOCH",
    "DROPPED",
    "DAMAGED",
    "HOLES",
    "PROBLEMS",
)


def as_text(plan: BucketPlan, refusals: Sequence[str], *, applying: bool) -> str:
    """The plan for people; `refusals` are shown as what stands in the way of `--apply`."""
    lines = [_cluster_line(plan), *_journal_lines(plan), ""]
    partitions = [partition for topic in plan.topics for partition in topic.partitions]
    if partitions:
        lines += table([_COLUMNS, *map(_row, partitions)])
    else:
        lines.append("Nothing to rebuild: there are no segments and no checkpoints.")
    lines += section("Left out", _dropped_lines(partitions))
    lines += section("Damaged", (*_damaged_lines(partitions), *plan.problems))
    lines += section("Holes", _hole_lines(partitions))
    lines += section("Problems", _problem_lines(plan.topics))
    lines += section("Open transactions, which --apply ends", _transaction_lines(partitions))
    if plan.restored is not None:
        lines += _snapshot_lines(plan, plan.restored)
    elif partitions:
        lines += section("Not in the bucket, and so not rebuilt", NOT_IN_THE_BUCKET)
    if plan.foreign_objects:
        lines += ["", f"{plan.foreign_objects} objects are neither segments nor indexes: ignored."]
    if not applying:
        lines += section("In the way of --apply", refusals)
        does = "is refused while the above stands in its way" if refusals else "carries this out"
        lines += ["", f"Nothing was written. --apply {does}."]
    return "\n".join(lines)


def _cluster_line(plan: BucketPlan) -> str:
    if plan.cluster_id is None:
        return f"Namespace {plan.namespace!r} of the object store; it has no cluster marker."
    return f"Namespace {plan.namespace!r} of the object store; it belongs to cluster {plan.cluster_id}."


def _journal_lines(plan: BucketPlan) -> Iterator[str]:
    if plan.journals:
        yield f"It has {len(plan.journals)} journals; --apply ends those that have not ended."


def _snapshot_lines(plan: BucketPlan, restored: Restored) -> list[str]:
    topics = sum(topic.record is not None for topic in plan.topics)
    counts = ", ".join(f"{count} {what}" for what, count in _counts(restored).items())
    return [
        "",
        f"From snapshot {restored.key} of {time_text(restored.created_ms)}: the ids and configs of {topics} topics, "
        f"{counts.replace('_', ' ')}.",
        *section("Otherwise than in the snapshot", restored.notes),
        *section("Not in the snapshot, and so not restored", SINCE_THE_SNAPSHOT),
    ]


def _counts(restored: Restored) -> dict[str, int]:
    return {
        "groups": restored.count(keys.GROUPS),
        "committed_offsets": restored.count(keys.GROUP_OFFSETS),
        "retired_names": restored.count(keys.RETIRED),
        "transactional_ids": restored.count(keys.TRANSACTIONS),
    }


def _row(plan: PartitionPlan) -> tuple[str, ...]:
    record = plan.record
    return (
        plan.topic,
        str(plan.partition),
        str(plan.segment_count),
        str(plan.record_count),
        str(plan.size_bytes),
        str(record.log_start_offset),
        str(record.log_end_offset),
        "none" if plan.highest_epoch < 0 else str(plan.highest_epoch),
        *(str(len(found) or "-") for found in (plan.dropped, plan.damaged, plan.holes, plan.problems)),
    )


def _dropped_lines(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    for partition in partitions:
        for one in partition.dropped:
            segment = one.segment
            because = f" ({one.because})" if one.because else ""
            yield (
                f"{segment.key}: offsets {segment.base_offset} to {segment.last_offset}, "
                f"{_epoch_text(segment.leader_epoch)}; {one.reason.value}{because}"
            )


def _epoch_text(leader_epoch: int) -> str:
    return "no leader epoch" if leader_epoch < 0 else f"leader epoch {leader_epoch}"


def _damaged_lines(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    for partition in partitions:
        for one in partition.damaged:
            yield f"{one.key}: {one.problem}"


def _hole_lines(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    for partition in partitions:
        for hole in partition.holes:
            name = f"{partition.topic}-{partition.partition}"
            yield f"{name}: offsets {hole.first_offset} to {hole.last_offset}; {hole.reason.value}"


def _problem_lines(topics: Iterable[TopicPlan]) -> Iterator[str]:
    for topic in topics:
        if topic.problem:
            yield f"topic {topic.name}: {topic.problem}"
        for partition in topic.partitions:
            for problem in partition.problems:
                yield f"{partition.topic}-{partition.partition}: {problem}"


def _transaction_lines(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    for partition in partitions:
        for one in partition.record.transactions.open[:_MOST_TRANSACTIONS]:
            yield (
                f"{partition.topic}-{partition.partition}: of producer {one.producer_id}, epoch "
                f"{one.producer_epoch}, from offset {one.first_offset} on"
            )
        more = len(partition.record.transactions.open) - _MOST_TRANSACTIONS
        if more > 0:
            yield f"{partition.topic}-{partition.partition}: {more} more"


def as_fields(plan: BucketPlan, refusals: Sequence[str]) -> dict[str, Any]:
    """The plan for programs; docs/recover.md lists the fields."""
    return {
        "namespace": plan.namespace,
        "cluster_id": plan.cluster_id,
        "foreign_objects": plan.foreign_objects,
        "journals": [
            {"journal": journal_id, "broker": record.broker_id, "ended_at": record.ended_at}
            for journal_id, record in sorted(plan.journals.items())
        ],
        "problems": list(plan.problems),
        "refusals": list(refusals),
        "snapshot": None if plan.restored is None else _snapshot_fields(plan.restored),
        "topics": [
            {
                "topic": topic.name,
                "topic_id": None if topic.record is None else str(topic.record.topic_id),
                "problem": topic.problem or None,
                "partitions": [_partition_fields(partition) for partition in topic.partitions],
            }
            for topic in plan.topics
        ],
    }


def _snapshot_fields(restored: Restored) -> Mapping[str, Any]:
    return {
        "key": restored.key,
        "created_ms": restored.created_ms,
        "revision": restored.revision,
        **_counts(restored),
        "notes": list(restored.notes),
    }


def _partition_fields(plan: PartitionPlan) -> Mapping[str, Any]:
    return {
        "partition": plan.partition,
        "segments": plan.segment_count,
        "records": plan.record_count,
        "bytes": plan.size_bytes,
        "log_start_offset": plan.record.log_start_offset,
        "log_end_offset": plan.record.log_end_offset,
        "highest_leader_epoch": plan.highest_epoch,
        "record_leader_epoch": plan.record.leader_epoch,
        "open_transactions": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "first_offset": one.first_offset,
            }
            for one in plan.record.transactions.open
        ],
        "dropped": [_dropped_fields(one) for one in plan.dropped],
        "damaged": [_damaged_fields(one) for one in plan.damaged],
        "holes": [_hole_fields(one) for one in plan.holes],
        "problems": list(plan.problems),
    }


def _dropped_fields(one: Dropped) -> Mapping[str, Any]:
    return {
        "key": one.segment.key,
        "base_offset": one.segment.base_offset,
        "last_offset": one.segment.last_offset,
        "leader_epoch": one.segment.leader_epoch,
        "reason": one.reason.name,
        "because": one.because or None,
    }


def _damaged_fields(one: DamagedObject) -> Mapping[str, Any]:
    return {"key": one.key, "base_offset": one.base_offset, "problem": one.problem}


def _hole_fields(one: Hole) -> Mapping[str, Any]:
    return {"first_offset": one.first_offset, "last_offset": one.last_offset, "reason": one.reason.name}
