"""The operations by which a group's coordinator sets, alters and deletes the starts of a share group. Pure.

The coordinator writes them as every write of the group, under compare of its shard's owner, in the order given here,
in one transaction or in several. `known` is what it has read from the store and written since, not what a view shows.

The order makes each step safe: a leader writes a state only under compare of its start. A state is deleted when no
start is there: after its start's deletion, and again before a start is set where none was. So no state outlives its
start and is taken for that of a later one, whose epochs begin again.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.formats.share_start_record import (
    AS_CONFIGURED,
    MAX_STATE_EPOCH,
    ShareStartRecord,
    encode_share_start,
)
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import Delete, Operation, Put

KnownStarts = Mapping[SharePartitionId, ShareStartRecord]

DELETIONS_AT_ONCE: Final = 100
"""Operations of one step of a deletion: fewer than fit into a transaction."""


@dataclass(frozen=True, slots=True)
class Change:
    """Who sets starts, and when. `principal`: empty for the coordinator itself. `now_ms`: Unix milliseconds."""

    now_ms: int
    principal: str = ""


@dataclass(frozen=True, slots=True)
class StartChanges:
    """Operations, and the starts that are there once they are durable."""

    operations: tuple[Operation, ...]
    starts: KnownStarts


def initialize(partitions: Iterable[SharePartitionId], known: KnownStarts, change: Change) -> StartChanges:
    """Set the start of each partition that has none: where reading begins is decided at the first fetch."""
    wanted = {partition: AS_CONFIGURED for partition in partitions if partition not in known}
    return alter(wanted, known, change)


def alter(offsets: Mapping[SharePartitionId, int], known: KnownStarts, change: Change) -> StartChanges:
    """Set these start offsets; what the group has done in these partitions so far means nothing from then on.

    Raises `ValueError` for an offset that is not legal, or if a start has been altered too often.
    """
    operations: list[Operation] = []
    starts = {}
    for partition, offset in offsets.items():
        before = known.get(partition)
        if before is None:
            operations.append(Delete(keys.share_state(partition)))
        elif before.state_epoch >= MAX_STATE_EPOCH:
            raise ValueError(
                f"the start of group {partition.group_id[:200]!r} in partition {partition.partition} of topic "
                f"{partition.topic_id} has state epoch {before.state_epoch}, the last one: delete it"
            )
        record = ShareStartRecord(
            state_epoch=0 if before is None else before.state_epoch + 1,
            start_offset=offset,
            changed_ms=change.now_ms,
            changed_by=change.principal,
        )
        operations.append(Put(keys.share_start(partition), encode_share_start(record)))
        starts[partition] = record
    return StartChanges(tuple(operations), starts)


def delete(partitions: Iterable[SharePartitionId]) -> tuple[Operation, ...]:
    """Delete the starts of these partitions, and their states. No error where there are none."""
    return tuple(
        Delete(key)
        for partition in partitions
        for key in (keys.share_start(partition), keys.share_state(partition))
    )


def delete_all(
    start_keys: Iterable[str], state_keys: Iterable[str], at_once: int = DELETIONS_AT_ONCE
) -> Iterator[tuple[Operation, ...]]:
    """The steps that delete these keys, of at most `at_once` operations each: those of a whole group, say.

    Each step is to be durable before the next one is written. All starts go first: once a group has none, no
    leader writes its states. After a failure the keys that are left are read, and it begins again.
    """
    operations = [Delete(key) for part in (start_keys, state_keys) for key in part]
    for begin in range(0, len(operations), at_once):
        yield tuple(operations[begin : begin + at_once])


def of_deleted_topics(share_keys: Iterable[str], topic_ids: Collection[uuid.UUID]) -> list[str]:
    """Those of the keys, of starts or of states, whose topic is gone. Keys that no broker writes are passed over.

    `topic_ids`: of all topics in the store, read after the keys were: an id is never used again.
    """
    gone = []
    for key in share_keys:
        try:
            partition = keys.share_partition(key)
        except ValueError:
            continue
        if partition.topic_id not in topic_ids:
            gone.append(key)
    return gone
