"""A dump as lines of text: batches, records and index entries are those of Kafka's DumpLogSegments (4.1)."""

from collections.abc import Iterator
from typing import Final, assert_never

from kafscale.commands.dump_values import shown_bytes, shown_name
from kafscale.errors import CorruptDataError
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import ProducerRecord, SegmentReference
from kafscale.formats.partition_transactions import AbortedTransaction, BatchKind
from kafscale.formats.segment import VERSION as SEGMENT_VERSION
from kafscale.protocol.control_records import ControlRecord
from kafscale.protocol.record_batch import CODEC_MASK, NO_SEQUENCE, BatchHeader, sequence_after
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundCheckpoint,
    FoundEntry,
    FoundFence,
    FoundIndexHeader,
    FoundJournalObject,
    FoundRecord,
    FoundSegmentFooter,
    FoundSegmentHeader,
    FoundSlice,
    Note,
    Problem,
)

_KIND_MARKS: Final = {
    BatchKind.PLAIN: "",
    BatchKind.TRANSACTIONAL: "/transactional",
    BatchKind.ABORT: "/abort",
    BatchKind.COMMIT: "/commit",
}


def lines_of(finding: Finding) -> Iterator[str]:
    """The lines for standard output; none for problems and notes, which go elsewhere."""
    match finding:
        case FoundBatch():
            yield _batch(finding)
        case FoundRecord():
            yield _record(finding)
        case FoundEntry():
            name = "relativeOffset" if finding.is_relative else "offset"
            yield f"{name}: {finding.offset} position: {finding.position}"
        case FoundSegmentHeader():
            yield from _segment_header(finding)
        case FoundSegmentFooter():
            yield _segment_footer(finding)
        case FoundIndexHeader():
            yield _index_header(finding)
        case FoundCheckpoint():
            yield from _checkpoint(finding.checkpoint, finding.size_bytes)
        case FoundJournalObject():
            yield _journal_object(finding)
        case FoundFence():
            yield _fence(finding)
        case FoundSlice():
            yield _slice(finding)
        case Problem() | Note():
            return
        case _:
            assert_never(finding)


def codec_name(header: BatchHeader) -> str:
    """Kafka's name of the batch's codec; the number where there is no such codec."""
    try:
        return header.codec.type_name
    except CorruptDataError:
        return str(header.attributes & CODEC_MASK)


def timestamp_type(header: BatchHeader) -> str:
    """Kafka's name of what the timestamps are."""
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def sequence_of(header: BatchHeader, offset: int) -> int:
    """The sequence number of the record at `offset`, or NO_SEQUENCE."""
    if header.base_sequence < 0:
        return NO_SEQUENCE
    return sequence_after(header.base_sequence, offset - header.base_offset)


def _segment_header(found: FoundSegmentHeader) -> Iterator[str]:
    header = found.header
    codec = "unknown" if header.codec is None else header.codec.type_name
    yield f"Log starting offset: {header.base_offset}"
    yield (
        f"segment header: version: {SEGMENT_VERSION} flags: {header.flags} codec: {codec} "
        f"segmentBaseOffset: {header.base_offset} messageCount: {header.message_count} "
        f"createdMs: {header.created_ms} fileSize: {found.size_bytes}"
    )


def _segment_footer(found: FoundSegmentFooter) -> str:
    line = f"segment footer: bodyCrc: {found.footer.body_crc} segmentLastOffset: {found.footer.last_offset}"
    return line if found.is_valid is None else f"{line} bodyIsValid: {_boolean(found.is_valid)}"


def _batch(found: FoundBatch) -> str:
    header = found.header
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    line = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_boolean(header.is_transactional)} isControl: {_boolean(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {found.position} "
        f"{timestamp_type(header)}: {header.max_timestamp} size: {header.size_bytes} magic: {header.magic} "
        f"compresscodec: {codec_name(header)} crc: {header.crc}"
    )
    return line if found.is_valid is None else f"{line} isvalid: {_boolean(found.is_valid)}"


def _record(found: FoundRecord) -> str:
    batch, record = found.batch, found.record
    line = (
        f"| offset: {record.offset} {timestamp_type(batch)}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
        f"sequence: {sequence_of(batch, record.offset)} "
        f"headerKeys: [{','.join(shown_name(name) for name, _ in record.headers)}]"
    )
    if found.control is not None:
        return f"{line} {_control(found.control)}"
    if record.key is not None:
        line += f" key: {shown_bytes(record.key)}"
    if record.value is not None:
        line += f" payload: {shown_bytes(record.value)}"
    return line


def _control(control: ControlRecord) -> str:
    if control.coordinator_epoch is None:
        return f"controlType: {control.type_name}({control.type_id})"
    return f"endTxnMarker: {control.type_name} coordinatorEpoch: {control.coordinator_epoch}"


def _index_header(found: FoundIndexHeader) -> str:
    base_offset = "unknown" if found.base_offset is None else found.base_offset
    return (
        f"index header: version: {found.version} entries: {found.entry_count} interval: {found.interval} "
        f"segmentBaseOffset: {base_offset} fileSize: {found.size_bytes}"
    )


def _checkpoint(checkpoint: Checkpoint, size_bytes: int) -> Iterator[str]:
    yield (
        f"checkpoint: endOffset: {checkpoint.end_offset} segments: {len(checkpoint.segments)} "
        f"producers: {len(checkpoint.producers)} aborted: {len(checkpoint.aborted)} fileSize: {size_bytes}"
    )
    yield from map(_reference, checkpoint.segments)
    yield from map(_producer, checkpoint.producers)
    yield from map(_aborted, checkpoint.aborted)


def _aborted(one: AbortedTransaction) -> str:
    return (
        f"aborted: producerId: {one.producer_id} firstOffset: {one.first_offset} lastOffset: {one.last_offset} "
        f"lastStableOffset: {one.last_stable_offset}"
    )


def _reference(reference: SegmentReference) -> str:
    line = (
        f"baseOffset: {reference.base_offset} lastOffset: {reference.last_offset} "
        f"count: {reference.record_count} partitionLeaderEpoch: {reference.leader_epoch} "
        f"size: {reference.size_bytes} maxTimestamp: {reference.max_timestamp_ms}"
    )
    if reference.object_key:
        line += f" start: {reference.start} key: {shown_name(reference.object_key)}"
    return line


def _producer(producer: ProducerRecord) -> str:
    batches = ",".join(
        f"{batch.first_sequence}-{batch.last_sequence}@{batch.base_offset}" for batch in producer.batches
    )
    return (
        f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch} "
        f"lastTimestamp: {producer.last_timestamp_ms} batches: [{batches}]"
    )


def _journal_object(found: FoundJournalObject) -> str:
    head = found.head
    through = "" if found.is_gathered else f"committedThrough: {head.committed_through} "
    return (
        f"{'gathered' if found.is_gathered else 'entry'}: journal: {shown_name(head.journal_id)} "
        f"sequence: {head.sequence} broker: {head.broker_id} {through}createdMs: {head.created_ms} "
        f"slices: {len(head.slices)} headSize: {found.head_bytes} fileSize: {found.size_bytes}"
    )


def _fence(found: FoundFence) -> str:
    fence = found.fence
    return (
        f"fence: journal: {shown_name(fence.journal_id)} sequence: {fence.sequence} broker: {fence.broker_id} "
        f"createdMs: {fence.created_ms} fileSize: {found.size_bytes}"
    )


def _slice(found: FoundSlice) -> str:
    row = found.row
    place = f"key: {shown_name(row.object_key)}" if found.position is None else f"position: {found.position}"
    producers = ",".join(
        f"{one.producer_id}/{one.producer_epoch}:{one.batch.first_sequence}-{one.batch.last_sequence}"
        f"@{one.batch.base_offset}{_KIND_MARKS[one.kind]}"
        for one in row.producers
    )
    return (
        f"slice: topic: {shown_name(row.topic)} partition: {row.partition} topicId: {row.topic_id} "
        f"baseOffset: {row.base_offset} lastOffset: {row.last_offset} count: {row.record_count} "
        f"partitionLeaderEpoch: {row.leader_epoch} maxTimestamp: {row.max_timestamp_ms} {place} "
        f"size: {row.size_bytes} bodyCrc: {row.body_crc} producers: [{producers}]"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
