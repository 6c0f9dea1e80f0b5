"""The newest batches of an idempotent producer as they are stored (docs/format/partition-record.md). Pure.

A *run* of a producer is a sequence of batches of one epoch that were published without a gap. Of a run are kept the
newest five batches as they were, as Kafka does, and before them at most one that stands for all earlier ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.protocol.record_batch import MAX_SEQUENCE, sequence_after, sequence_before

REMEMBERED_BATCHES = 5
"""As they were; Kafka's number, and the most requests that a producer has in flight."""

MOST_BATCHES = REMEMBERED_BATCHES + 1
"""In what is stored of one producer."""

_LONGEST_RUN = (MAX_SEQUENCE + 1) // 2
"""In sequence numbers. They go on at 0 after the largest, so that of a longer run old and new look alike."""


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """A published batch of an idempotent producer, or several of one run, with the base offset of the first.

    The marker of a transaction that began a new epoch has the sequence numbers -1 to -1: the next batch begins at 0.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int


def with_batches(
    batches: tuple[ProducerBatch, ...], newer: Iterable[ProducerBatch]
) -> tuple[ProducerBatch, ...]:
    """The batches to keep when `newer` were published after `batches`, in this order and in the same epoch.

    A batch that does not begin where the one before it ended begins a new run: the leader that took it had
    forgotten the producer.
    """
    for batch in newer:
        if not batches or batch.first_sequence != sequence_after(batches[-1].last_sequence, 1):
            batches = (batch,)
        elif len(batches) > REMEMBERED_BATCHES:
            batches = (_together(batches[0], batches[1]), *batches[2:], batch)
        else:
            batches = (*batches, batch)
    return batches


def _together(older: ProducerBatch, newer: ProducerBatch) -> ProducerBatch:
    """One for both; the newer one alone if they are too long."""
    if sequence_before(newer.last_sequence, older.first_sequence) >= _LONGEST_RUN:
        return newer
    return ProducerBatch(older.first_sequence, newer.last_sequence, older.base_offset)


def find_published(
    batches: tuple[ProducerBatch, ...], first_sequence: int, last_sequence: int
) -> ProducerBatch | None:
    """The batch with exactly these sequence numbers, if it is one of the newest five."""
    for batch in batches[-REMEMBERED_BATCHES:]:
        if (batch.first_sequence, batch.last_sequence) == (first_sequence, last_sequence):
            return batch
    return None


def is_older(batches: tuple[ProducerBatch, ...], first_sequence: int, last_sequence: int) -> bool:
    """True if everything with these sequence numbers was published before the newest five batches."""
    if len(batches) <= REMEMBERED_BATCHES:
        return False
    older = batches[0]
    from_first = sequence_before(older.last_sequence, first_sequence)
    from_last = sequence_before(older.last_sequence, last_sequence)
    return from_last <= from_first <= sequence_before(older.last_sequence, older.first_sequence)
