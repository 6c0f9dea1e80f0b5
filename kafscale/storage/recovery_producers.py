"""What a rebuild learns from the sequence numbers in the batches: leftovers among what is kept, and the producers.

Pure. A partition's published log never holds the same batch of an idempotent producer twice in a row (KIP-98):
where the bucket does, the earlier one was a leftover whose producer tried again.
"""

from collections.abc import Iterable, Sequence

from kafscale.metadata.partition_record import ProducerBatch, ProducerRecord
from kafscale.storage.producer_state import REMEMBERED_BATCHES
from kafscale.storage.segment_inspection import InspectedSegment, SequencedBatch


def repeated(kept: Sequence[InspectedSegment]) -> dict[str, str]:
    """The segments that are leftovers after all, by key, with the key of the segment that repeats each.

    Only a segment of one record can be one without overlapping what its successor wrote one offset further
    up, so only those are looked at, and only where the next segment begins right after.
    """
    found: dict[str, str] = {}
    newest: dict[int, tuple[SequencedBatch, str]] = {}
    for position, segment in enumerate(kept):
        for batch in segment.sequenced:
            previous = newest.get(batch.producer_id)
            if previous is not None and previous[1] and _identity(previous[0]) == _identity(batch):
                found[previous[1]] = segment.key
            following = kept[position + 1] if position + 1 < len(kept) else None
            newest[batch.producer_id] = (batch, segment.key if _may_be_leftover(segment, following) else "")
    return found


def _may_be_leftover(segment: InspectedSegment, following: InspectedSegment | None) -> bool:
    return (
        not segment.is_merged
        and segment.base_offset == segment.last_offset
        and segment.leader_epoch >= 0
        and following is not None
        and following.base_offset == segment.last_offset + 1
        and following.leader_epoch >= segment.leader_epoch
    )


def _identity(batch: SequencedBatch) -> tuple[int, int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.first_sequence, batch.last_sequence


def producers_after(
    known: Iterable[ProducerRecord], kept: Iterable[InspectedSegment], from_offset: int, expiration_ms: int
) -> tuple[ProducerRecord, ...]:
    """The idempotent producers once all of `kept` is published, by their ids.

    `known`: as they were at `from_offset`. Those that wrote nothing in the last `expiration_ms` before the
    newest segment was made are left out, as the leader does.
    """
    producers = {producer.producer_id: producer for producer in known}
    newest_ms = max((producer.last_timestamp_ms for producer in producers.values()), default=0)
    for segment in kept:
        newest_ms = max(newest_ms, segment.created_ms)
        for batch in segment.sequenced:
            if batch.base_offset >= from_offset:
                _add(producers, batch, segment.created_ms)
    return tuple(
        producer
        for _, producer in sorted(producers.items())
        if producer.last_timestamp_ms >= newest_ms - expiration_ms
    )


def _add(producers: dict[int, ProducerRecord], batch: SequencedBatch, created_ms: int) -> None:
    before = producers.get(batch.producer_id)
    if before is not None and before.producer_epoch > batch.producer_epoch:
        return
    same_epoch = before is not None and before.producer_epoch == batch.producer_epoch
    earlier = before.batches if before is not None and same_epoch else ()
    published = ProducerBatch(batch.first_sequence, batch.last_sequence, batch.base_offset)
    producers[batch.producer_id] = ProducerRecord(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        last_timestamp_ms=created_ms,
        batches=(*earlier, published)[-REMEMBERED_BATCHES:],
    )
