"""The leader's log: offsets, sealing, the record that it publishes, and the answers to its waiters."""

import hashlib
import itertools
import struct
from dataclasses import replace

import pytest

from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log import partition_log
from kafscale.log.batch_append import AppendRules
from kafscale.log.checkpoint_pointer import CheckpointPointer, with_checkpoint
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing import segment_buffer
from kafscale.memory.slab import SlabPool
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import read_header, write_crc
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record, decode_records
from tests.formats.segments import Segment, parse_segment, verify_segment

NOW_MS = 1_700_000_000_000
KEEP = AppendRules(codec=None, log_append_time=False, segment_bytes=1 << 20)
RECORD = PartitionRecord(leader_epoch=5, log_end_offset=100, epochs=(EpochStart(5, 100),))


class Told:
    """A waiter that remembers its answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []

    def published(self, base_offset: int, log_start_offset: int) -> None:
        self.answers.append(("published", base_offset))

    def refused(self, error_code: int, message: str) -> None:
        self.answers.append(("refused", error_code))


def batch(count: int, *, producer_id: int = -1, sequence: int = -1, value: bytes = b"value " * 20) -> bytes:
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(
        [Record(i, NOW_MS - 100 + i, None, value) for i in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def append(log: PartitionLog, batch: bytes, rules: AppendRules = KEEP) -> Told:
    told = Told()
    view = memoryview(batch)
    log.append(view, read_header(view, 0), rules, NOW_MS, SlabPool(0), told)
    return told


def new_log(record: PartitionRecord = RECORD) -> PartitionLog:
    return PartitionLog(record, ProducerStates(record.producers))


def seal(log: PartitionLog) -> SealedSegment:
    return log.seal(*log.start_seal(), NOW_MS)


def publish(log: PartitionLog, sealed: SealedSegment | None = None) -> PartitionRecord:
    """Publish the oldest sealed segment, or seal one for it."""
    sealed = sealed or seal(log)
    return log.published(sealed, sealed.reference)


def segment_of(sealed: SealedSegment) -> Segment:
    segment = parse_segment("sealed", b"".join(sealed.parts))
    verify_segment(segment)
    return segment


def test_batches_get_consecutive_offsets_and_the_leader_epoch() -> None:
    log = new_log()
    told = [append(log, batch(count)) for count in (3, 2, 4, 1)]
    sealed = seal(log)
    headers = [header for _, header in verify_segment(segment_of(sealed))]
    assert [header.base_offset for header in headers] == [100, 103, 105, 109]
    assert {header.partition_leader_epoch for header in headers} == {5}
    record = publish(log, sealed)
    assert [one.answers for one in told] == [[("published", offset)] for offset in (100, 103, 105, 109)]
    assert (record.log_end_offset, log.record) == (110, record)
    assert record.segments == (sealed.reference,)


def test_no_waiter_is_notified_before_publication() -> None:
    log = new_log()
    told = append(log, batch(3))
    sealed = seal(log)
    assert told.answers == []
    publish(log, sealed)
    assert told.answers == [("published", 100)]


def test_the_sealed_file_agrees_with_its_reference_and_index() -> None:
    log = new_log()
    for _ in range(300):
        append(log, batch(2))
    sealed = seal(log)
    segment = segment_of(sealed)
    assert sealed.reference.size_bytes == len(segment.data)
    assert sealed.reference.record_count == segment.header.message_count == 600
    assert sealed.reference.max_timestamp_ms == NOW_MS - 99
    index = sealed.index
    assert index is not None
    index.check(last_offset=segment.last_offset, body_end=segment.body_end)
    positions = {header.base_offset: position for position, header in verify_segment(segment)}
    assert [positions[offset] for offset in index.offsets] == list(index.positions)
    assert len(index.offsets) == 6


def test_slice_lies_where_its_entry_says() -> None:
    log = new_log()
    append(log, batch(3))
    sealed = seal(log)
    reference = sealed.reference._replace(object_key="entry", start=77)
    record = log.published(sealed, reference)
    assert record.segments == (reference,)
    assert log.is_ahead


def test_stored_change_stays_beside_what_is_published_meanwhile() -> None:
    log = new_log()
    append(log, batch(3))
    stored = publish(log)
    append(log, batch(2))
    publish(log)
    record = log.adopt(lambda state: replace(state, log_start_offset=102), stored.log_end_offset)
    assert (record.log_start_offset, record.log_end_offset) == (102, 105)
    assert (log.record, log.is_ahead) == (record, True)
    log.adopt(lambda state: state, record.log_end_offset)
    assert not log.is_ahead


def test_what_comes_after_the_seal_goes_into_the_next_segment() -> None:
    log = new_log()
    append(log, batch(3))
    sealed = seal(log)
    append(log, batch(2))
    assert log.waiting is not None
    publish(log, sealed)
    assert publish(log).log_end_offset == 105
    assert log.waiting is None


def test_a_retry_is_answered_like_the_first_attempt_at_any_stage() -> None:
    log = new_log()
    first = append(log, batch(3, producer_id=7, sequence=0))
    while_waiting = append(log, batch(3, producer_id=7, sequence=0))
    sealed = seal(log)
    while_sealed = append(log, batch(3, producer_id=7, sequence=0))
    record = publish(log, sealed)
    when_published = append(log, batch(3, producer_id=7, sequence=0))
    after_a_restart = append(new_log(record), batch(3, producer_id=7, sequence=0))
    for told in (first, while_waiting, while_sealed, when_published, after_a_restart):
        assert told.answers == [("published", 100)]
    assert (log.waiting, record.log_end_offset) == (None, 103)


def test_a_gap_is_refused_and_stores_nothing() -> None:
    log = new_log()
    append(log, batch(3, producer_id=7, sequence=0))
    told = append(log, batch(1, producer_id=7, sequence=4))
    assert told.answers == [("refused", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    assert publish(log).log_end_offset == 103


def claiming(count: int) -> bytes:
    """A batch whose header claims so many records."""
    data = bytearray(batch(1))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    write_crc(data, 0)
    return bytes(data)


def test_batch_that_would_overflow_a_segment_begins_the_next() -> None:
    most = 2**31 - 1
    log = new_log()
    told = [append(log, claiming(count)) for count in (most - 5, 5, 1, most, most)]
    ends = []
    while log.waiting is not None:
        sealed = log.seal(*log.start_seal(), NOW_MS)
        assert sealed.reference.record_count == segment_of(sealed).header.message_count
        record = publish(log, sealed)
        assert decode_partition_record("record", encode_partition_record(record)) == record
        ends.append(record.log_end_offset - 100)
    assert ends == [most, most + 1, 2 * most + 1, 3 * most + 1]
    offsets = [100, 95 + most, 100 + most, 101 + most, 101 + 2 * most]
    assert [one.answers for one in told] == [[("published", offset)] for offset in offsets]


@pytest.mark.parametrize("is_refused", [True, False])
def test_failing_refuses_the_sealed_and_the_waiting(is_refused: bool) -> None:
    log = new_log()
    in_flight = append(log, batch(1))
    seal(log).is_refused = is_refused
    waiting = append(log, batch(1))
    log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced")
    # What is in flight may count, unless it is known not to.
    told = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_refused else ErrorCode.REQUEST_TIMED_OUT
    assert in_flight.answers == [("refused", told)]
    assert waiting.answers == [("refused", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_uncompressed_batches_get_the_topics_codec(codec: Codec) -> None:
    log = new_log()
    rules = AppendRules(codec=codec, log_append_time=False, segment_bytes=1 << 20)
    append(log, batch(50), rules=rules)
    segment = segment_of(seal(log))
    assert segment.header.codec == codec
    [(position, header)] = verify_segment(segment)
    assert header.codec == codec
    records = decode_records(segment.data[position : segment.body_end], 1 << 20)
    assert [(r.offset, r.value) for r in records] == [(100 + i, b"value " * 20) for i in range(50)]
    assert len(segment.body) < len(batch(50))


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -7, 19)]
)
def test_the_topics_level_decides_how_small_a_batch_becomes(codec: Codec, low: int, high: int) -> None:
    digest = hashlib.shake_128(b"seed").digest(6000)
    value = b"".join(
        b"user %d, item %d of %d\n" % (a % 50, b, c) for a, b, c in struct.iter_unpack("3B", digest)
    )
    sizes = []
    for level in (low, high):
        log = new_log()
        rules = AppendRules(codec=codec, log_append_time=False, segment_bytes=1 << 20, codec_level=level)
        append(log, batch(2, value=value), rules=rules)
        segment = segment_of(seal(log))
        assert segment.header.codec == codec
        assert [r.value for r in decode_records(segment.body, 1 << 20)] == [value] * 2
        sizes.append(len(segment.body))
    assert sizes[1] < sizes[0]


def test_what_does_not_shrink_stays_as_it_is() -> None:
    log = new_log()
    rules = AppendRules(codec=Codec.SNAPPY, log_append_time=False, segment_bytes=1 << 20)
    append(log, batch(1, value=b"x"), rules=rules)
    segment = segment_of(seal(log))
    assert [header.codec for _, header in verify_segment(segment)] == [Codec.NONE]


def test_log_append_time_is_the_brokers() -> None:
    log = new_log()
    append(log, batch(2), rules=AppendRules(codec=None, log_append_time=True, segment_bytes=1 << 20))
    sealed = seal(log)
    segment = segment_of(sealed)
    assert sealed.reference.max_timestamp_ms == NOW_MS
    assert {r.timestamp_ms for r in decode_records(segment.body, 1 << 20)} == {NOW_MS}


def is_due(log: PartitionLog) -> bool:
    """As of now: mypy takes a property to stay as it was."""
    return log.checkpoint_due


def test_a_checkpoint_takes_its_part_out_of_the_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 3)
    log = new_log()
    for producer_id in range(3):
        assert not is_due(log)
        append(log, batch(1, producer_id=producer_id, sequence=0))
        publish(log)
    # Slices of entries stay in the record until they are sealed.
    assert not is_due(log)
    log.adopt(lambda state: state, log.record.log_end_offset)
    assert is_due(log)
    pointer = log.waiting_checkpoint = CheckpointPointer(key="c", end_offset=103)
    append(log, batch(1, producer_id=1, sequence=1))
    record = log.adopt(lambda state: with_checkpoint(state, pointer), publish(log).log_end_offset)
    assert (record.checkpoint_key, record.checkpoint_end_offset) == ("c", 103)
    assert [segment.base_offset for segment in record.segments] == [103]
    assert [producer.producer_id for producer in record.producers] == [1]
    assert not is_due(log)


def test_a_large_backlog_is_split_into_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_buffer, "SEGMENT_BUFFER_LIMIT_BYTES", 1000)
    log = new_log()
    told = [append(log, batch(1)) for _ in range(20)]
    sizes = []
    while log.waiting is not None:
        sizes.append(publish(log).segments[-1].record_count)
    assert len(sizes) > 1
    offsets = [one.answers[0][1] for one in told]
    assert offsets == list(itertools.islice(itertools.count(100), 20))
