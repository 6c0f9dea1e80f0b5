"""A leader's log with transactions, without stores: what it publishes, segment by segment, and its record."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from kafscale.formats import object_keys
from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.batch_append import AppendRules
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.memory.slab import SlabPool
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import parse_segment, segment_of

NAMESPACE = "production"
TOPIC = "orders"
NOW_MS = 1_700_000_000_000
RULES = AppendRules(codec=None, log_append_time=False, segment_bytes=1 << 20)


class Waiter:
    """Every append here succeeds."""

    def published(self, base_offset: int, log_start_offset: int) -> None:
        pass

    def refused(self, error_code: int, message: str) -> None:
        raise AssertionError(message)


class TransactionalLog:
    """`segments`: the bytes of what was flushed. A producer's epoch and next sequence are kept here."""

    def __init__(self, record: PartitionRecord | None = None) -> None:
        record = record or PartitionRecord(leader_epoch=3)
        self.log = PartitionLog(record, ProducerStates(record.producers, record.transactions.open))
        self.segments: deque[bytes] = deque()
        self.next: dict[int, tuple[int, int]] = {}

    @property
    def record(self) -> PartitionRecord:
        return self.log.record

    @property
    def opened(self) -> dict[int, int]:
        """The epochs of the producers with an open transaction, by id."""
        return self.log.producers.open_transactions

    def write(self, producer_id: int, count: int = 1, *, is_transactional: bool = True) -> None:
        """Append a batch."""
        epoch, sequence = self.next.get(producer_id, (0, 0))
        batch = memoryview(
            encode_batch(
                [Record(number, NOW_MS, None, b"%d" % producer_id) for number in range(count)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )
        self.next[producer_id] = epoch, sequence + count
        self.log.append(batch, read_header(batch, 0), RULES, NOW_MS, SlabPool(0), Waiter())

    def end(self, producer_id: int, *, commits: bool, bumps: bool) -> None:
        """Append the marker of the producer's open transaction; `bumps`: in a new epoch."""
        epoch, sequence = self.next[producer_id]
        if bumps:
            epoch, sequence = epoch + 1, 0
        self.next[producer_id] = epoch, sequence
        end = EndOfTransaction(producer_id, epoch, coordinator_epoch=0, is_commit=commits)
        self.log.append_marker(end, NOW_MS, SlabPool(0), Waiter())

    def flush(self) -> None:
        """Publish what was appended as a segment of its own."""
        if self.log.is_empty:
            return
        buffer, base_offset = self.log.start_seal()
        sealed = self.log.seal(buffer, base_offset, NOW_MS)
        self.log.published(sealed, sealed.reference)
        self.segments.append(b"".join(bytes(part) for part in sealed.parts))

    def merge(self, first: int, count: int) -> None:
        """Make one segment of several."""
        parts = list(self.segments)
        sources, rest = parts[first : first + count], parts[first + count :]
        if len(sources) < 2:
            return
        batches = [one for source in sources for one in batches_in(source)]
        self.segments = deque((*parts[:first], segment_of(batches, created_ms=NOW_MS), *rest))

    def inspected(self, piece_bytes: int = 1 << 20) -> list[InspectedSegment]:
        """The segments as a rebuild finds them."""
        return [inspect(data, piece_bytes) for data in self.segments]


def batches_in(segment: bytes) -> Sequence[bytes]:
    """The batches of a segment."""
    body = bytes(parse_segment("segment", segment).body)
    found, position = [], 0
    while position < len(body):
        size_bytes = read_header(body, position).size_bytes
        found.append(body[position : position + size_bytes])
        position += size_bytes
    return found


def inspect(data: bytes, piece_bytes: int) -> InspectedSegment:
    """A segment that was published, as a rebuild finds it."""
    base_offset = read_header(data, 32).base_offset
    key = object_keys.segment_key(NAMESPACE, TOPIC, 0, base_offset)
    inspection = SegmentInspection(key, object_keys.parse_segment_key(key), len(data))
    for start in range(0, len(data), piece_bytes):
        inspection.feed(data[start : start + piece_bytes])
    return replace(inspection.finish(), is_merged=True)
