"""Acknowledgements: what members say of the records that they have."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.partition.runs import RecordState, Run
from kafscale.share.partition.share_partition import SharePartition, advance, available_again


class AcknowledgeType(IntEnum):
    """As on the wire. GAP: the member has found no record at the offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class AcknowledgedBatch:
    """Offsets, both inclusive. `types`: one for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[AcknowledgeType]

    def pieces(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Neighbouring offsets of the same type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        offset = self.first
        for kind, same in groupby(self.types):
            count = sum(1 for _ in same)
            yield offset, offset + count - 1, kind
            offset += count


def acknowledge(
    partition: SharePartition, member_id: str, batches: Iterable[AcknowledgedBatch], now_ms: int
) -> None:
    """Do what the member says, or nothing of it.

    Raises `KafkaError`: INVALID_REQUEST for offsets that were never acquired, INVALID_RECORD_STATE for records that
    this member does not have, any more or at all. Those below the start offset are finished: no error.
    """
    pieces = [
        (max(first, partition.start_offset), last, kind)
        for batch in batches
        for first, last, kind in batch.pieces()
        if last >= partition.start_offset
    ]
    changes: list[tuple[list[Run], AcknowledgeType]] = []
    ends_at = -1
    for first, last, kind in pieces:
        if first <= ends_at:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {first} is acknowledged twice")
        ends_at = last
        changes.append((_owned(partition, member_id, first, last), kind))
    partition.runs.replace(
        [_acknowledged(partition, run, kind, now_ms) for runs, kind in changes for run in runs]
    )
    if any(kind is not AcknowledgeType.RENEW for _, kind in changes):
        partition.version += 1
        advance(partition)


def _owned(partition: SharePartition, member_id: str, first: int, last: int) -> list[Run]:
    """The runs of these offsets, all of which the member has."""
    if last >= partition.end_offset:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Batch record not found: offsets {first} to {last}, and only those below {partition.end_offset} "
            "were acquired.",
        )
    runs = partition.runs.within(first, last)
    for run in runs:
        if run.state is not RecordState.ACQUIRED:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"Offsets {run.first} to {run.last} cannot be acknowledged: they are {run.state.name.lower()}.",
            )
        if run.member_id != member_id:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"Member is not the owner of offsets {run.first} to {run.last}.",
            )
    return runs


def _acknowledged(partition: SharePartition, run: Run, kind: AcknowledgeType, now_ms: int) -> Run:
    counts, number = partition.counts, run.records
    match kind:
        case AcknowledgeType.RENEW:
            counts.renewed += number
            return run._replace(locked_until_ms=now_ms + partition.limits.lock_duration_ms)
        case AcknowledgeType.RELEASE:
            counts.released += number
            return available_again(run, partition)
        case AcknowledgeType.ACCEPT:
            counts.accepted += number
            state = RecordState.ACKNOWLEDGED
        case AcknowledgeType.REJECT:
            counts.rejected += number
            counts.refused += number
            state = RecordState.ARCHIVED
        case AcknowledgeType.GAP:
            counts.gaps += number
            state = RecordState.ARCHIVED
    return Run(run.first, run.last, state, run.delivery_count)
