"""The state of a partition's idempotent producers, to refuse gaps and recognise retries (KIP-98).

A batch is *pending* from its append until its segment is published. Retries are recognised among pending and
published batches; only published ones are stored.

Producers are kept in the order of their last appends. Segments are published in the order of appends, too, so
those without anything pending come first, and the first of them is removed first (decision 0041).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from kafscale.formats.partition_record import ProducerRecord
from kafscale.formats.partition_transactions import OpenTransaction
from kafscale.formats.producer_batches import ProducerBatch, find_published, is_older, with_batches
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import NO_SEQUENCE, sequence_after

MOST_PRODUCERS = 5000
"""The limit on the producers of one partition: all of them are in the checkpoint and in a new leader's memory."""


class PendingBatch:
    """An appended batch that is not published yet. `relative_offset` counts from its segment's first offset."""

    __slots__ = (
        "first_sequence",
        "last_sequence",
        "producer_epoch",
        "relative_offset",
        "segment",
        "timestamp_ms",
    )

    def __init__(
        self,
        segment: object,
        relative_offset: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        timestamp_ms: int,
    ) -> None:
        self.segment = segment
        self.relative_offset = relative_offset
        self.producer_epoch = producer_epoch
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.timestamp_ms = timestamp_ms


class UnpublishedBatch(NamedTuple):
    """A batch of a producer, in its newest epoch, that is appended and not known to be published."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


class _Producer:
    __slots__ = ("last_timestamp_ms", "pending", "published", "published_epoch")

    def __init__(self) -> None:
        self.published_epoch = -1
        self.published: tuple[ProducerBatch, ...] = ()
        self.pending: deque[PendingBatch] = deque()
        self.last_timestamp_ms = -1

    @property
    def newest_epoch(self) -> int:
        return self.pending[-1].producer_epoch if self.pending else self.published_epoch

    def publish_oldest(self, base_offset: int) -> None:
        batch = self.pending.popleft()
        earlier = self.published if batch.producer_epoch == self.published_epoch else ()
        published = ProducerBatch(batch.first_sequence, batch.last_sequence, base_offset)
        self.published = with_batches(earlier, (published,))
        self.published_epoch = batch.producer_epoch
        self.last_timestamp_ms = batch.timestamp_ms


def joined(records: Iterable[ProducerRecord]) -> list[ProducerRecord]:
    """One record for each producer, of several: of the newest epoch, with the newest batches of all.

    The record of a partition may have only what a producer wrote since the checkpoint, which has the rest; also a
    marker alone, which has no sequence numbers: those of its epoch go on. `records`: the older ones first.
    """
    newest: dict[int, ProducerRecord] = {}
    for record in records:
        known = newest.get(record.producer_id)
        if known is not None and known.producer_epoch == record.producer_epoch:
            record = replace(record, batches=_joined_batches(known.batches, record.batches))
        newest[record.producer_id] = record
    return list(newest.values())


def _joined_batches(
    known: tuple[ProducerBatch, ...], newer: tuple[ProducerBatch, ...]
) -> tuple[ProducerBatch, ...]:
    """The batches of one epoch. A marker that did not begin it stands for none: sequence numbers go on behind it."""
    if known:
        newer = tuple(batch for batch in newer if batch.first_sequence != NO_SEQUENCE)
    if not newer:
        return known
    return with_batches(tuple(batch for batch in known if batch.base_offset < newer[0].base_offset), newer)


class ProducerStates:
    """The idempotent producers of one partition; `records`: see `joined`.

    `open_transactions`: the epoch of each producer with an open transaction, as of what was appended.
    """

    def __init__(
        self, records: Iterable[ProducerRecord] = (), opened: Iterable[OpenTransaction] = ()
    ) -> None:
        self._producers: dict[int, _Producer] = {}
        self._forgotten = 0
        self.open_transactions: dict[int, int] = {one.producer_id: one.producer_epoch for one in opened}
        for record in sorted(joined(records), key=attrgetter("last_timestamp_ms"))[-MOST_PRODUCERS:]:
            producer = self._producers[record.producer_id] = _Producer()
            producer.published_epoch = record.producer_epoch
            producer.published = record.batches
            producer.last_timestamp_ms = record.last_timestamp_ms

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def newest_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """The producer's epoch and the last sequence number that it appended; None if it is not known."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if producer.pending:
            return producer.pending[-1].producer_epoch, producer.pending[-1].last_sequence
        return producer.published_epoch, producer.published[-1].last_sequence

    def unpublished(self, producer_ids: Iterable[int]) -> Iterator[UnpublishedBatch]:
        """All pending batches of each producer's newest epoch, the oldest first."""
        for producer_id in producer_ids:
            producer = self._producers.get(producer_id)
            if producer is None or not producer.pending:
                continue
            epoch = producer.pending[-1].producer_epoch
            for batch in producer.pending:
                if batch.producer_epoch == epoch and batch.first_sequence != NO_SEQUENCE:
                    yield UnpublishedBatch(producer_id, epoch, batch.first_sequence)

    def has_no_room_for(self, producer_id: int) -> bool:
        """True if the producer is unknown and cannot be added: all known ones have something pending."""
        return (
            len(self._producers) >= MOST_PRODUCERS
            and producer_id not in self._producers
            and self._oldest_idle() is None
        )

    def _oldest_idle(self) -> int | None:
        """The producer to forget first. Those without anything pending come first, but for open transactions."""
        for producer_id, producer in self._producers.items():
            if producer.pending:
                return None
            if producer_id not in self.open_transactions:
                return producer_id
        return None

    def check(
        self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> ErrorCode | PendingBatch | ProducerBatch:
        """`NONE` if the batch is the next one, the earlier batch if it is a retry, else the error.

        As Kafka's ProducerAppendInfo: an unknown producer may start at any sequence, a new epoch at 0 only. Unlike
        it, a retry of one that was published before the last five is `DUPLICATE_SEQUENCE_NUMBER` (decision 0075).
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        newest = producer.pending[-1] if producer.pending else None
        epoch = newest.producer_epoch if newest else producer.published_epoch
        if producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if producer_epoch > epoch:
            return ErrorCode.NONE if first_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected = sequence_after(newest.last_sequence if newest else producer.published[-1].last_sequence, 1)
        if first_sequence == expected:
            return ErrorCode.NONE
        for pending in producer.pending:
            held = (pending.producer_epoch, pending.first_sequence, pending.last_sequence)
            if held == (producer_epoch, first_sequence, last_sequence):
                return pending
        if producer.published_epoch == producer_epoch:
            published = find_published(producer.published, first_sequence, last_sequence)
            if published is not None:
                return published
            if is_older(producer.published, first_sequence, last_sequence):
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def append(self, producer_id: int, batch: PendingBatch) -> None:
        """Add a batch that `check` found to be the next one, of a producer that there is room for.

        At the limit, a new producer replaces the one that has not appended for the longest time.
        """
        self._newest(producer_id).pending.append(batch)

    def _newest(self, producer_id: int) -> _Producer:
        """The producer, which appends now."""
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            producer = _Producer()
            if len(self._producers) >= MOST_PRODUCERS and (oldest := self._oldest_idle()) is not None:
                del self._producers[oldest]
                self._forgotten += 1
        self._producers[producer_id] = producer
        return producer

    def append_marker(self, producer_id: int, marker: PendingBatch) -> None:
        """Add the marker of a producer's open transaction, which ends with it.

        In a new epoch, sequence numbers begin at 0 again; in the same one they go on, and nothing is remembered.
        """
        self.open_transactions.pop(producer_id, None)
        producer = self._newest(producer_id)
        if marker.producer_epoch > producer.newest_epoch:
            producer.pending.append(marker)

    def publish_marker(self, producer_id: int, producer_epoch: int, base_offset: int, now_ms: int) -> None:
        """The marker, which was appended in this epoch, got `base_offset`."""
        producer = self._producers[producer_id]
        oldest = producer.pending[0] if producer.pending else None
        if oldest and (oldest.first_sequence, oldest.producer_epoch) == (NO_SEQUENCE, producer_epoch):
            producer.publish_oldest(base_offset)
        producer.last_timestamp_ms = max(producer.last_timestamp_ms, now_ms)

    def take_forgotten(self) -> int:
        """The number of producers that were replaced by others since the last call."""
        forgotten, self._forgotten = self._forgotten, 0
        return forgotten

    def records(self, producer_ids: Iterable[int]) -> list[ProducerRecord]:
        """The records to store of these producers, which have published."""
        return [self._record(producer_id, self._producers[producer_id]) for producer_id in producer_ids]

    def publish(self, producer_id: int, base_offset: int) -> None:
        """The producer's oldest pending batch got `base_offset`."""
        self._producers[producer_id].publish_oldest(base_offset)

    def published(self) -> Iterator[ProducerRecord]:
        """The record to store of each producer that has published."""
        for producer_id, producer in self._producers.items():
            if producer.published:
                yield self._record(producer_id, producer)

    def expire(self, before_ms: int) -> None:
        """Remove the producers that appended nothing since `before_ms` (Kafka's producer.id.expiration.ms)."""
        for producer_id, producer in list(self._producers.items()):
            if (
                not producer.pending
                and producer.last_timestamp_ms < before_ms
                and producer_id not in self.open_transactions
            ):
                del self._producers[producer_id]

    @staticmethod
    def _record(producer_id: int, producer: _Producer) -> ProducerRecord:
        return ProducerRecord(
            producer_id=producer_id,
            producer_epoch=producer.published_epoch,
            last_timestamp_ms=producer.last_timestamp_ms,
            batches=producer.published,
        )
