"""The objects of journals for tests of tools: entries, fences and gathered objects of real segments."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.journal_entry import (
    NOTHING_COMMITTED,
    CellKind,
    EntryHead,
    EntrySlice,
    Fence,
    SliceKind,
    SliceProducer,
    encode_fence,
    encode_head,
)
from kafscale.formats.journal_keys import entry_key, gathered_key
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.record_batch import read_header
from tests.formats.segments import parse_segment, segment_of, verify_segment

NAMESPACE = "production"
JOURNAL = "1-abc"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Slice:
    """A row, whose `start` is not set yet, and its segment."""

    row: EntrySlice
    data: bytes


def topic_id(topic: str) -> uuid.UUID:
    """The id that a topic of this name has in these tests."""
    return uuid.uuid5(uuid.NAMESPACE_URL, topic)


def slice_of(topic: str, partition: int, *batches: bytes) -> Slice:
    """A slice of these batches, with the row that its writer would give it."""
    data = segment_of(batches, created_ms=NOW_MS)
    segment = parse_segment("slice", data)
    verify_segment(segment)
    headers = [read_header(batch, 0) for batch in batches]
    producers = tuple(
        SliceProducer(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            batch=ProducerBatch(one.base_sequence, one.last_sequence, one.base_offset),
            kind=kind_of_batch(one, memoryview(batch)),
        )
        for one, batch in zip(headers, batches, strict=True)
        if one.producer_id >= 0
    )
    row = EntrySlice(
        topic_id=topic_id(topic),
        topic=topic,
        partition=partition,
        leader_epoch=max(one.partition_leader_epoch for one in headers),
        base_offset=headers[0].base_offset,
        last_offset=headers[-1].last_offset,
        record_count=sum(one.record_count for one in headers),
        max_timestamp_ms=max(one.max_timestamp for one in headers),
        size_bytes=len(data),
        body_crc=segment.footer.body_crc,
        producers=producers,
        kind=SliceKind.TRANSACTIONS if any(one.kind for one in producers) else SliceKind.RECORDS,
    )
    return Slice(row, data)


def entry_of(
    sequence: int,
    slices: Sequence[Slice],
    *,
    committed_through: int | None = None,
    journal_id: str = JOURNAL,
    kind: CellKind = CellKind.ENTRY,
) -> bytes:
    """A whole entry; without `committed_through` the one before it was known to be committed."""
    if committed_through is None:
        committed_through = NOTHING_COMMITTED if kind is CellKind.GATHERED else sequence - 1
    in_order = sorted(slices, key=lambda one: (one.row.topic_id, one.row.partition))
    rows, bodies, start = [], [], 0
    for one in in_order:
        if one.row.object_key:
            rows.append(one.row._replace(start=0))
            continue
        rows.append(one.row._replace(start=start))
        bodies.append(one.data)
        start += len(one.data)
    head = EntryHead(
        journal_id=journal_id,
        broker_id=1,
        sequence=sequence,
        committed_through=committed_through,
        created_ms=NOW_MS,
        slices=tuple(rows),
    )
    return b"".join((encode_head(head, kind), *bodies))


def fence_of(sequence: int, *, journal_id: str = JOURNAL) -> bytes:
    """A whole fence of another broker."""
    return encode_fence(Fence(journal_id=journal_id, broker_id=2, sequence=sequence, created_ms=NOW_MS))


async def put_entry(
    store: ObjectStore,
    sequence: int,
    *slices: Slice,
    committed_through: int | None = None,
    journal_id: str = JOURNAL,
) -> str:
    """Put an entry; returns its key."""
    key = entry_key(NAMESPACE, journal_id, sequence)
    data = entry_of(sequence, slices, committed_through=committed_through, journal_id=journal_id)
    await store.put_if_absent(key, [data])
    return key


async def put_fence(store: ObjectStore, sequence: int, *, journal_id: str = JOURNAL) -> str:
    """Put a fence; returns its key."""
    key = entry_key(NAMESPACE, journal_id, sequence)
    await store.put_if_absent(key, [fence_of(sequence, journal_id=journal_id)])
    return key


async def put_gathered(store: ObjectStore, sequence: int, *slices: Slice, journal_id: str = JOURNAL) -> str:
    """Put a gathered object; returns its key."""
    key = gathered_key(NAMESPACE, journal_id, sequence)
    await store.put_if_absent(
        key, [entry_of(sequence, slices, journal_id=journal_id, kind=CellKind.GATHERED)]
    )
    return key
