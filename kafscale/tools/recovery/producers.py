"""Sequence numbers in a rebuild: orphans among the segments that are kept, and the producers.

Pure. A partition's published log never holds the same batch of an idempotent producer twice in a row (KIP-98):
where the bucket does, the earlier one was an orphan whose producer tried again.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafscale.formats.partition_record import ProducerRecord
from kafscale.formats.producer_batches import REMEMBERED_BATCHES, ProducerBatch, with_batches
from kafscale.log.reading.segment_inspection import InspectedSegment, SequencedBatch
from kafscale.protocol.record_batch import NO_SEQUENCE


def repeated(kept: Sequence[InspectedSegment]) -> dict[str, str]:
    """The segments that are orphans after all, by key, with the key of the last segment that repeats each.

    Only those of which every record is repeated: so nothing is lost even where another writer of the format
    published a producer's retries as if they were new.
    """
    newest: dict[int, deque[tuple[SequencedBatch, InspectedSegment]]] = {}
    repeated_records: Counter[str] = Counter()
    because: dict[str, str] = {}
    candidates: dict[str, InspectedSegment] = {}
    for segment in kept:
        for batch in segment.sequenced:
            if batch.first_sequence == NO_SEQUENCE:
                continue  # Markers of one epoch look alike.
            earlier = newest.setdefault(batch.producer_id, deque(maxlen=REMEMBERED_BATCHES))
            for before, older in earlier:
                if older is not segment and before.identity == batch.identity and _may_be_orphan(older):
                    repeated_records[older.key] += batch.record_count
                    because[older.key] = segment.key
                    candidates[older.key] = older
            earlier.append((batch, segment))
    return {
        key: because[key] for key, older in candidates.items() if repeated_records[key] >= older.record_count
    }


def _may_be_orphan(segment: InspectedSegment) -> bool:
    return not segment.is_merged and segment.leader_epoch >= 0


def producers_of(
    known: Iterable[ProducerRecord], kept: Iterable[InspectedSegment], expiration_ms: int
) -> tuple[ProducerRecord, ...]:
    """The idempotent producers once all of `kept` is published, by their ids.

    `known`: what a checkpoint remembers, of segments that may be gone by now. The segments it covers count as
    well: an orphan among them that is kept was not published when it was written. Producers that wrote nothing
    in the last `expiration_ms` before the newest segment was made are left out, as the leader does.
    """
    producers = {producer.producer_id: producer for producer in known}
    newest_ms = max((producer.last_timestamp_ms for producer in producers.values()), default=0)
    for segment in kept:
        newest_ms = max(newest_ms, segment.created_ms)
        for batch in segment.sequenced:
            before = producers.get(batch.producer_id)
            producers[batch.producer_id] = _with_batch(before, batch, segment.created_ms)
    return tuple(
        producer
        for _, producer in sorted(producers.items())
        if producer.last_timestamp_ms >= newest_ms - expiration_ms
    )


def _with_batch(before: ProducerRecord | None, batch: SequencedBatch, created_ms: int) -> ProducerRecord:
    published = ProducerBatch(batch.first_sequence, batch.last_sequence, batch.base_offset)
    is_marker = batch.first_sequence == NO_SEQUENCE
    if is_marker and before is not None and before.producer_epoch == batch.producer_epoch:
        # Sequence numbers go on.
        return replace(before, last_timestamp_ms=max(created_ms, before.last_timestamp_ms))
    if before is None or before.producer_epoch < batch.producer_epoch:
        batches: tuple[ProducerBatch, ...] = (published,)
    elif before.producer_epoch > batch.producer_epoch or batch.base_offset <= before.batches[-1].base_offset:
        return before
    else:
        batches = with_batches(before.batches, (published,))
    return ProducerRecord(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        last_timestamp_ms=max(created_ms, -1 if before is None else before.last_timestamp_ms),
        batches=batches,
    )
