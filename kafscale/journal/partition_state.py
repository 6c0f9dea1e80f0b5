"""A partition's published state: its record, and what the leader's journal has behind it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafscale.formats.journal_entry import EntrySlice, SliceKind, SliceProducer
from kafscale.formats.journal_keys import entry_key, is_unsealed_key
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord, SegmentReference
from kafscale.formats.partition_transactions import TransactionEvent, after_events
from kafscale.formats.producer_batches import with_batches
from kafscale.journal.replay import PlacedSlice, Replay


def slice_reference(namespace: str, journal_id: str, placed: PlacedSlice) -> SegmentReference:
    """The reference to a slice, by which it is read like any segment."""
    one = placed.slice
    return SegmentReference(
        base_offset=one.base_offset,
        last_offset=one.last_offset,
        record_count=one.record_count,
        leader_epoch=one.leader_epoch,
        size_bytes=one.size_bytes,
        max_timestamp_ms=one.max_timestamp_ms,
        object_key=one.object_key or entry_key(namespace, journal_id, placed.sequence),
        start=placed.head_bytes + one.start if not one.object_key else 0,
    )


def transaction_events(one: EntrySlice) -> Iterator[TransactionEvent]:
    """The effects of the slice on transactions, in the order of its batches."""
    if one.kind is SliceKind.TRANSACTIONS:
        for producer in one.producers:
            yield TransactionEvent(
                producer.kind, producer.producer_id, producer.producer_epoch, producer.batch.base_offset
            )


def unsealed(references: Sequence[SegmentReference]) -> tuple[SegmentReference, ...]:
    """Those that lie in gathered objects and in entries of journals: the newest of a partition, oldest first."""
    first = len(references)
    while first and is_unsealed_key(references[first - 1].object_key):
        first -= 1
    return tuple(references[first:])


def partition_state(
    record: PartitionRecord, replay: Replay | None, namespace: str, index: int
) -> PartitionRecord:
    """The state of the partition `index` of a topic, from its record and the replay of the journal that it names.

    The result names the journal still, at the position of the last slice. Raises `CorruptDataError` if the slices do
    not follow the record without a gap, `ValueError` if the replay begins too late for it.
    """
    position = record.journal
    if position is None:
        return record
    if replay is None or replay.first > position.sequence + 1:
        raise ValueError(f"no replay of journal {position.journal_id} from entry {position.sequence + 1} on")
    found = replay.behind(position.topic_id, index, position.sequence, record.log_end_offset)
    if not found:
        return record
    return replace(
        record,
        log_end_offset=found[-1].slice.last_offset + 1,
        segments=(
            *record.segments,
            *(slice_reference(namespace, position.journal_id, placed) for placed in found),
        ),
        producers=_with_batches(record.producers, found),
        journal=replace(position, sequence=found[-1].sequence),
        transactions=after_events(
            record.transactions, (event for placed in found for event in transaction_events(placed.slice))
        ),
    )


def _with_batches(
    producers: Sequence[ProducerRecord], found: Sequence[PlacedSlice]
) -> tuple[ProducerRecord, ...]:
    """The producers after these slices; those that wrote last come last."""
    states = {one.producer_id: one for one in producers}
    for placed in found:
        for one in placed.slice.producers:
            states[one.producer_id] = _after(states.pop(one.producer_id, None), one, placed.created_ms)
    return tuple(states.values())


def _after(known: ProducerRecord | None, one: SliceProducer, created_ms: int) -> ProducerRecord:
    same_epoch = known is not None and known.producer_epoch == one.producer_epoch
    if known is not None and same_epoch and one.kind.is_marker:
        return replace(known, last_timestamp_ms=created_ms)
    earlier = known.batches if known is not None and same_epoch else ()
    return ProducerRecord(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        last_timestamp_ms=created_ms,
        batches=with_batches(earlier, (one.batch,)),
    )
