"""The transactions of a partition in a rebuild: which are open, and which were aborted. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    BatchKind,
    PartitionTransactions,
    TransactionEvent,
    after_events,
    from_log_start,
)
from kafscale.log.producer_state import MOST_PRODUCERS
from kafscale.log.reading.segment_inspection import InspectedSegment
from kafscale.protocol.record_batch import NO_PRODUCER_EPOCH


class Ending(NamedTuple):
    """The marker that a producer's last transaction in a partition has."""

    producer_epoch: int
    is_commit: bool


def endings_of(kept: Iterable[InspectedSegment]) -> Mapping[int, Ending]:
    """The last markers in a partition, by producer id: those of the most recent `MOST_PRODUCERS` producers."""
    endings: dict[int, Ending] = {}
    for segment in kept:
        for kind, producer_id, producer_epoch, _ in segment.transactions:
            if kind.is_marker:
                endings.pop(producer_id, None)
                endings[producer_id] = Ending(producer_epoch, kind is BatchKind.COMMIT)
                if len(endings) > MOST_PRODUCERS:
                    del endings[next(iter(endings))]
    return endings


def transactions_of(
    known: Iterable[AbortedTransaction], kept: Iterable[InspectedSegment], log_start_offset: int
) -> PartitionTransactions:
    """The transactions once all of `kept`, in order, is published. All aborted ones are in it.

    `known`: the aborted transactions that a checkpoint names. They count where the marker itself cannot be read:
    else records behind a damaged segment would be taken for a part of the transaction that was aborted in it.
    """
    return from_log_start(after_events(NO_TRANSACTIONS, _events(known, kept)), log_start_offset)


def _events(
    known: Iterable[AbortedTransaction], kept: Iterable[InspectedSegment]
) -> Iterator[TransactionEvent]:
    waiting = deque(sorted(known, key=lambda one: one.last_offset))
    for segment in kept:
        for event in segment.transactions:
            while waiting and waiting[0].last_offset < event.offset:
                yield _end_of(waiting.popleft())
            if waiting and waiting[0].last_offset == event.offset:
                waiting.popleft()
            yield event
    yield from map(_end_of, waiting)


def _end_of(one: AbortedTransaction) -> TransactionEvent:
    return TransactionEvent(BatchKind.ABORT, one.producer_id, NO_PRODUCER_EPOCH, one.last_offset)
