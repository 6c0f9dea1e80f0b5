"""Buckets for tests of the rebuild: segments as leaders of given epochs would have written them."""

from collections.abc import Sequence

from kafscale.formats import object_keys
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.objects.memory_store import MemoryStore
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.control_records import EndOfTransaction, end_of_transaction_batch
from kafscale.protocol.record_batch import read_header, stamp
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import segment_of

NAMESPACE = "production"
TOPIC = "orders"
NOW_MS = 1_700_000_000_000


def batch(
    base_offset: int,
    count: int,
    epoch: int,
    *,
    producer: tuple[int, int, int] | None = None,
    text: str = "",
    is_transactional: bool = False,
) -> bytes:
    """A batch. `producer`: its id, its epoch and the first sequence number."""
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    records = [
        Record(offset, NOW_MS + offset, None, f"{text or epoch}-{offset - base_offset}".encode())
        for offset in range(base_offset, base_offset + count)
    ]
    return encode_batch(
        records,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def marker(base_offset: int, epoch: int, producer: tuple[int, int], *, commits: bool) -> bytes:
    """The end of a transaction. `producer`: its id and its epoch."""
    end = EndOfTransaction(*producer, coordinator_epoch=1, is_commit=commits)
    data = bytearray(end_of_transaction_batch(end, NOW_MS + base_offset)[0])
    stamp(data, 0, base_offset, epoch)
    return bytes(data)


def key_of(batches: Sequence[bytes], *, merged: bool = False, topic: str = TOPIC, partition: int = 0) -> str:
    """The key under which a leader would put these batches."""
    base = read_header(batches[0], 0).base_offset
    if merged:
        last = read_header(batches[-1], 0).last_offset
        return object_keys.merged_segment_key(NAMESPACE, topic, partition, base, last)
    return object_keys.segment_key(NAMESPACE, topic, partition, base)


async def put(
    store: ObjectStore,
    *batches: bytes,
    merged: bool = False,
    topic: str = TOPIC,
    partition: int = 0,
    created_ms: int = NOW_MS,
) -> str:
    """Put a segment of the batches; returns its key."""
    key = key_of(batches, merged=merged, topic=topic, partition=partition)
    await store.put_if_absent(key, [segment_of(batches, created_ms=created_ms)])
    return key


def inspected(*batches: bytes, merged: bool = False, created_ms: int = NOW_MS) -> InspectedSegment:
    """A segment of the batches as its inspection describes it."""
    return inspect(key_of(batches, merged=merged), segment_of(batches, created_ms=created_ms))


def inspect(key: str, data: bytes, piece_bytes: int = 1_000_000) -> InspectedSegment:
    """Inspect the object's bytes in pieces."""
    parsed = object_keys.parse_segment_key(key)
    assert parsed is not None
    inspection = SegmentInspection(key, parsed, len(data))
    for start in range(0, len(data), piece_bytes):
        inspection.feed(data[start : start + piece_bytes])
    return inspection.finish()


def memory_bucket() -> MemoryStore:
    return MemoryStore(lambda: NOW_MS)


class Silence:
    """Takes no interest in progress."""

    def inspected(self, key: str, size_bytes: int) -> None:
        pass

    def written(self, topic: str) -> None:
        pass
