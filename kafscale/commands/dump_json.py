"""A dump as JSON, an object a line; ASCII only, so that any terminal and any reader takes it."""

import json
from collections.abc import Iterator
from typing import assert_never

from kafscale.commands.dump_text import codec_name, sequence_of, timestamp_type
from kafscale.formats.segment import VERSION as SEGMENT_VERSION
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

Fields = dict[str, object]


def json_lines_of(finding: Finding, name: str) -> Iterator[str]:
    """The lines for standard output. `name`: the file's."""
    match finding:
        case FoundBatch():
            fields = _batch(finding)
        case FoundRecord():
            fields = _record(finding)
        case FoundEntry():
            offset = "relativeOffset" if finding.is_relative else "offset"
            fields = {"type": "entry", offset: finding.offset, "position": finding.position}
        case FoundSegmentHeader():
            fields = _segment_header(finding)
        case FoundSegmentFooter():
            fields = {
                "type": "segmentFooter",
                "bodyCrc": finding.footer.body_crc,
                "segmentLastOffset": finding.footer.last_offset,
                "bodyIsValid": finding.is_valid,
            }
        case FoundIndexHeader():
            fields = _index_header(finding)
        case FoundCheckpoint():
            yield from map(as_line, _checkpoint(finding))
            return
        case FoundJournalObject():
            fields = _journal_object(finding)
        case FoundFence():
            fields = {
                "type": "fence",
                "journal": finding.fence.journal_id,
                "sequence": finding.fence.sequence,
                "broker": finding.fence.broker_id,
                "createdMs": finding.fence.created_ms,
                "fileSize": finding.size_bytes,
            }
        case FoundSlice():
            fields = _slice(finding)
        case Problem():
            fields = {"type": "problem", "file": name, "problem": finding.text}
        case Note():
            fields = {"type": "note", "file": name, "note": finding.text}
        case _:
            assert_never(finding)
    yield as_line(fields)


def as_line(fields: Fields) -> str:
    """One object on one line."""
    return json.dumps(fields, separators=(",", ":"))


def _segment_header(found: FoundSegmentHeader) -> Fields:
    codec = found.header.codec
    return {
        "type": "segmentHeader",
        "version": SEGMENT_VERSION,
        "flags": found.header.flags,
        "codec": None if codec is None else codec.type_name,
        "segmentBaseOffset": found.header.base_offset,
        "messageCount": found.header.message_count,
        "createdMs": found.header.created_ms,
        "fileSize": found.size_bytes,
    }


def _batch(found: FoundBatch) -> Fields:
    header = found.header
    return {
        "type": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": found.position,
        "timestampType": timestamp_type(header),
        "maxTimestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": codec_name(header),
        "crc": header.crc,
        "isvalid": found.is_valid,
    }


def _record(found: FoundRecord) -> Fields:
    record = found.record
    fields: Fields = {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": timestamp_type(found.batch),
        "sequence": sequence_of(found.batch, record.offset),
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"key": name, **_bytes("value", value)} for name, value in record.headers],
    }
    if found.control is not None:
        fields["controlType"] = found.control.type_name
        fields["coordinatorEpoch"] = found.control.coordinator_epoch
    return fields


def _bytes(name: str, data: bytes | None) -> Fields:
    """Text under `name`, or digits under `nameHex` where it is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Hex": data.hex()}


def _index_header(found: FoundIndexHeader) -> Fields:
    return {
        "type": "indexHeader",
        "version": found.version,
        "entries": found.entry_count,
        "interval": found.interval,
        "segmentBaseOffset": found.base_offset,
        "fileSize": found.size_bytes,
    }


def _checkpoint(found: FoundCheckpoint) -> Iterator[Fields]:
    checkpoint = found.checkpoint
    yield {
        "type": "checkpoint",
        "endOffset": checkpoint.end_offset,
        "segments": len(checkpoint.segments),
        "producers": len(checkpoint.producers),
        "aborted": len(checkpoint.aborted),
        "fileSize": found.size_bytes,
    }
    for reference in checkpoint.segments:
        yield {
            "type": "reference",
            "baseOffset": reference.base_offset,
            "lastOffset": reference.last_offset,
            "count": reference.record_count,
            "partitionLeaderEpoch": reference.leader_epoch,
            "size": reference.size_bytes,
            "maxTimestamp": reference.max_timestamp_ms,
            "start": reference.start,
            "key": reference.object_key or None,
        }
    for producer in checkpoint.producers:
        yield {
            "type": "producer",
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "lastTimestamp": producer.last_timestamp_ms,
            "batches": [
                {
                    "firstSequence": batch.first_sequence,
                    "lastSequence": batch.last_sequence,
                    "baseOffset": batch.base_offset,
                }
                for batch in producer.batches
            ],
        }
    for one in checkpoint.aborted:
        yield {
            "type": "aborted",
            "producerId": one.producer_id,
            "firstOffset": one.first_offset,
            "lastOffset": one.last_offset,
            "lastStableOffset": one.last_stable_offset,
        }


def _journal_object(found: FoundJournalObject) -> Fields:
    head = found.head
    return {
        "type": "gathered" if found.is_gathered else "journalEntry",
        "journal": head.journal_id,
        "sequence": head.sequence,
        "broker": head.broker_id,
        "committedThrough": head.committed_through,
        "createdMs": head.created_ms,
        "slices": len(head.slices),
        "headSize": found.head_bytes,
        "fileSize": found.size_bytes,
    }


def _slice(found: FoundSlice) -> Fields:
    row = found.row
    return {
        "type": "slice",
        "topic": row.topic,
        "partition": row.partition,
        "topicId": str(row.topic_id),
        "baseOffset": row.base_offset,
        "lastOffset": row.last_offset,
        "count": row.record_count,
        "partitionLeaderEpoch": row.leader_epoch,
        "maxTimestamp": row.max_timestamp_ms,
        "position": found.position,
        "key": row.object_key or None,
        "size": row.size_bytes,
        "bodyCrc": row.body_crc,
        "producers": [
            {
                "producerId": one.producer_id,
                "producerEpoch": one.producer_epoch,
                "firstSequence": one.batch.first_sequence,
                "lastSequence": one.batch.last_sequence,
                "baseOffset": one.batch.base_offset,
                "kind": one.kind.name.lower(),
            }
            for one in row.producers
        ],
    }
