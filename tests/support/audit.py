"""An independent audit of a data folder: every segment, slice and index read by the format pages alone.

It imports nothing of kafscale. `python -m tests.support.audit DATA_FOLDER` prints what it finds.
"""

import re
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import crc32c
from kafka.record.default_records import DefaultRecordBatch

from tests.support.audit_journals import AuditError, FoundSlice, find_slices

__all__ = ["Audit", "AuditError", "AuditedSegment", "audit", "main"]

SEGMENT_NAME = re.compile(r"segment-(\d{20})(?:-(\d{20}))?\.kfs")
SEGMENT_HEADER = struct.Struct(">4sHHqiqi")  # magic, version, flags, base offset, count, created, reserved
SEGMENT_FOOTER = struct.Struct(">Iq4s")  # CRC-32C of the body, last offset, magic
INDEX_HEADER = struct.Struct(">4sHiiH")  # magic, version, entries, interval, reserved
INDEX_ENTRY = struct.Struct(">qi")  # offset, position
LEGAL_CODECS = (0, 1, 2, 3, 4)
BATCH_CODEC_OF_SEGMENT_CODEC = {1: 2, 2: 1, 3: 3, 4: 4}  # gzip and snappy have each other's number


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRecord:
    """One record as stored. `timestamp`: Unix milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedBatch:
    """One batch as stored. `position`: in the file, in bytes. `max_timestamp`: Unix milliseconds."""

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    records: tuple[AuditedRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """One `.kfs` file, or one slice of an entry or of a gathered object (`is_slice`), that passed every check."""

    path: Path
    topic: str
    partition: int
    base_offset: int
    last_offset: int
    created_ms: int
    batches: tuple[AuditedBatch, ...]
    size_bytes: int
    is_slice: bool = False

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")

    @property
    def lacks_index(self) -> bool:
        """True if it needs one: a slice does not."""
        return not self.is_slice and not self.index_path.exists()

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of its newest batches; a merged segment has older ones, too."""
        return self.batches[-1].leader_epoch

    @property
    def is_merged(self) -> bool:
        """True if it holds published batches for certain: merged, sealed, or a slice that counts."""
        return self.is_slice or self.path.stem.count("-") == 2


@dataclass(slots=True)
class Audit:
    """All segments of a folder.

    `orphans` are those that a segment of a higher leader epoch overlaps, `covered` those that lie within a
    merged one, which holds published batches only.
    """

    segments: list[AuditedSegment] = field(default_factory=list)
    orphans: list[AuditedSegment] = field(default_factory=list)
    covered: list[AuditedSegment] = field(default_factory=list)

    def partitions(self) -> dict[tuple[str, int], list[AuditedSegment]]:
        """(topic, partition) -> its segments in offset order, without orphans."""
        found: dict[tuple[str, int], list[AuditedSegment]] = {}
        for segment in self.segments:
            found.setdefault((segment.topic, segment.partition), []).append(segment)
        return found

    def records(self, topic: str, partition: int) -> Iterator[AuditedRecord]:
        """The records of a partition in offset order, without orphans."""
        next_offset = 0
        for segment in self.partitions().get((topic, partition), []):
            for batch in segment.batches:
                if batch.base_offset >= next_offset:  # merges of different sources may share some
                    next_offset = batch.last_offset + 1
                    yield from batch.records


def audit(folder: Path) -> Audit:
    """Check every segment, slice and index under the folder. Raises `AuditError` at the first broken one."""
    by_partition: dict[tuple[str, int], list[AuditedSegment]] = {}
    found = [audit_segment(path) for path in sorted(folder.rglob("*.kfs"))]
    for segment in [*found, *map(_audit_slice, find_slices(folder))]:
        by_partition.setdefault((segment.topic, segment.partition), []).append(segment)
    result = Audit()
    for segments in by_partition.values():
        standing, covered = without_covered(segments)
        kept, orphans = without_orphans(standing)
        result.covered += covered
        for segment in kept:  # an orphan's index may be that of another orphan under the same key
            audit_index(segment)
        result.segments += kept
        result.orphans += orphans
    return result


def without_covered(
    segments: Iterable[AuditedSegment],
) -> tuple[list[AuditedSegment], list[AuditedSegment]]:
    """Separate segments within a merged one: its sources, earlier merges, and orphans at their places."""
    standing: list[AuditedSegment] = []
    covered: list[AuditedSegment] = []
    merged_end = -1
    ordered = sorted(segments, key=lambda one: (one.base_offset, -one.last_offset, not one.is_merged))
    for segment in ordered:
        if segment.last_offset <= merged_end:
            covered.append(segment)
            continue
        standing.append(segment)
        if segment.is_merged:
            merged_end = segment.last_offset
    return standing, covered


def without_orphans(
    segments: Iterable[AuditedSegment],
) -> tuple[list[AuditedSegment], list[AuditedSegment]]:
    """Divide a partition's segments into the log and older leaders' unpublished uploads.

    Where ranges overlap the higher leader epoch wins; an epoch lower than one before it is an orphan. What
    overlaps a merged segment, which was published, was not.
    """
    kept: list[AuditedSegment] = []
    orphans: list[AuditedSegment] = []
    ordered = sorted(segments, key=lambda one: (one.base_offset, -one.last_offset, -one.leader_epoch))
    for segment in ordered:
        while kept and kept[-1].last_offset >= segment.base_offset:
            if kept[-1].is_merged or (
                kept[-1].leader_epoch >= segment.leader_epoch and not segment.is_merged
            ):
                break
            orphans.append(kept.pop())
        overlaps = bool(kept) and kept[-1].last_offset >= segment.base_offset
        if (overlaps and not (segment.is_merged and kept[-1].is_merged)) or (
            kept and kept[-1].leader_epoch > segment.leader_epoch
        ):
            orphans.append(segment)
        else:
            kept.append(segment)
    return kept, orphans


def audit_segment(path: Path) -> AuditedSegment:
    """Read one `.kfs`. Raises `AuditError`."""
    name = SEGMENT_NAME.fullmatch(path.name)
    _require(name is not None, path, "its name is not that of a segment")
    assert name is not None
    place = path.parent.parent.name, int(path.parent.name)
    segment = _audit_image(path, path.read_bytes(), place, is_slice=False)
    base_offset, last_offset = segment.base_offset, segment.last_offset
    _require(base_offset == int(name.group(1)), path, f"base offset {base_offset} under that name")
    if name.group(2):
        _require(last_offset == int(name.group(2)), path, f"last offset {last_offset} under that name")
    return segment


def _audit_slice(found: FoundSlice) -> AuditedSegment:
    segment = _audit_image(found.path, found.image, (found.topic, found.partition), is_slice=True)
    batches = segment.batches
    has = (
        segment.base_offset,
        segment.last_offset,
        sum(len(batch.records) for batch in batches),
        segment.leader_epoch,
        max(batch.max_timestamp for batch in batches),
        None if found.producers is None else tuple(map(_producer, filter(_has_producer, batches))),
    )
    says = (
        found.base_offset,
        found.last_offset,
        found.record_count,
        found.leader_epoch,
        found.max_timestamp,
        found.producers,
    )
    _require(has == says, found.path, f"{found.topic}-{found.partition}: {has} where its row says {says}")
    return segment


def _has_producer(batch: AuditedBatch) -> bool:
    return batch.producer_id >= 0


def _producer(batch: AuditedBatch) -> tuple[int, int, int, int, int]:
    """As in a row. Sequences go on at 0 after 2**31 - 1."""
    last = (batch.base_sequence + batch.last_offset - batch.base_offset) % 2**31
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, last, batch.base_offset


def _audit_image(path: Path, data: bytes, place: tuple[str, int], *, is_slice: bool) -> AuditedSegment:
    least = SEGMENT_HEADER.size + SEGMENT_FOOTER.size
    _require(len(data) > least, path, f"{len(data)} bytes, which is no more than header and footer")
    magic, version, flags, base_offset, count, created_ms, reserved = SEGMENT_HEADER.unpack_from(data)
    crc, last_offset, footer_magic = SEGMENT_FOOTER.unpack_from(data, len(data) - SEGMENT_FOOTER.size)
    body = data[SEGMENT_HEADER.size : -SEGMENT_FOOTER.size]
    _require(magic == b"KAFS", path, f"magic {magic!r}")
    _require(footer_magic == b"END!", path, f"footer magic {footer_magic!r}")
    _require(version == 1, path, f"version {version}")
    _require(flags in LEGAL_CODECS, path, f"flags {flags}")
    _require(reserved == 0, path, f"reserved field {reserved}")
    _require(created_ms > 0, path, f"created at {created_ms}")
    _require(crc32c.crc32c(body) == crc, path, "the body's CRC does not fit")
    batches = tuple(_batches(path, body))
    _require(batches[0].base_offset == base_offset, path, f"first batch at {batches[0].base_offset}")
    _require(batches[-1].last_offset == last_offset, path, f"last batch ends at {batches[-1].last_offset}")
    records = sum(len(batch.records) for batch in batches)
    _require(records == count, path, f"{records} records where the header says {count}")
    _check_flags(path, flags, batches)
    return AuditedSegment(
        path=path,
        topic=place[0],
        partition=place[1],
        base_offset=base_offset,
        last_offset=last_offset,
        created_ms=created_ms,
        batches=batches,
        size_bytes=len(data),
        is_slice=is_slice,
    )


def _batches(path: Path, body: bytes) -> Iterator[AuditedBatch]:
    position, next_offset, epoch = 0, -1, -1
    while position < len(body):
        _require(len(body) - position >= 61, path, f"half a batch header at {position}")
        size = 12 + int.from_bytes(body[position + 8 : position + 12], "big", signed=True)
        _require(61 < size <= len(body) - position, path, f"a batch of {size} bytes at {position}")
        batch = _batch(path, SEGMENT_HEADER.size + position, body[position : position + size])
        _require(
            batch.base_offset >= next_offset, path, f"offset {batch.base_offset} after {next_offset - 1}"
        )
        _require(batch.leader_epoch >= epoch, path, f"leader epoch {batch.leader_epoch} after {epoch}")
        yield batch
        next_offset, epoch = batch.last_offset + 1, batch.leader_epoch
        position += size


def _batch(path: Path, position: int, data: bytes) -> AuditedBatch:
    batch = DefaultRecordBatch(data)
    _require(batch.magic == 2, path, f"magic {batch.magic} at {position}")
    stored_crc = int.from_bytes(data[17:21], "big")
    _require(crc32c.crc32c(data[21:]) == stored_crc, path, f"a batch at {position} has a bad CRC")
    records = tuple(
        AuditedRecord(
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple((key, value) for key, value in record.headers),
        )
        for record in batch
    )
    offsets = [record.offset for record in records]
    _require(bool(records), path, f"no records in the batch at {position}")
    _require(offsets == sorted(set(offsets)), path, f"offsets of the batch at {position} do not grow")
    _require(offsets[0] >= batch.base_offset, path, f"a record before its batch at {position}")
    _require(offsets[-1] == batch.last_offset, path, f"last offset of the batch at {position}")
    return AuditedBatch(
        position=position,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        codec=batch.compression_type,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        max_timestamp=batch.max_timestamp,
        records=records,
    )


def _check_flags(path: Path, flags: int, batches: tuple[AuditedBatch, ...]) -> None:
    """The segment's codec, if one is named, is that of at least one of its batches."""
    codecs = {batch.codec for batch in batches}
    if flags:
        _require(BATCH_CODEC_OF_SEGMENT_CODEC[flags] in codecs, path, f"flags {flags}, batches {codecs}")


def audit_index(segment: AuditedSegment) -> None:
    """Read the segment's `.index`, if it has one. Raises `AuditError`.

    Its entries are exactly those that the format asks for: the first batch, then one per interval.
    """
    if segment.is_slice or segment.lacks_index:
        return
    path = segment.index_path
    data = path.read_bytes()
    _require(len(data) >= INDEX_HEADER.size, path, f"{len(data)} bytes")
    magic, version, count, interval, reserved = INDEX_HEADER.unpack_from(data)
    _require(magic == b"IDX\x00", path, f"magic {magic!r}")
    _require(version == 1, path, f"version {version}")
    _require(interval > 0, path, f"interval {interval}")
    _require(reserved == 0, path, f"reserved field {reserved}")
    _require(len(data) == INDEX_HEADER.size + count * INDEX_ENTRY.size, path, f"{count} entries")
    entries = list(INDEX_ENTRY.iter_unpack(data[INDEX_HEADER.size :]))
    expected = []
    messages_since = interval
    for batch in segment.batches:
        if messages_since >= interval:
            expected.append((batch.base_offset, batch.position))
            messages_since = 0
        messages_since += len(batch.records)
    _require(entries == expected, path, f"entries {entries[:5]}... where {expected[:5]}... are due")


def _require(condition: bool, path: Path, problem: str) -> None:
    if not condition:
        raise AuditError(f"{path}: {problem}")


def main(arguments: list[str]) -> int:
    """Print one line per partition; exit code 1 if a segment is broken."""
    if len(arguments) != 1:
        print("usage: python -m tests.support.audit DATA_FOLDER", file=sys.stderr)
        return 2
    try:
        result = audit(Path(arguments[0]))
    except AuditError as error:
        print(f"BROKEN: {error}", file=sys.stderr)
        return 1
    for (topic, partition), segments in sorted(result.partitions().items()):
        records = sum(len(batch.records) for segment in segments for batch in segment.batches)
        size = sum(segment.size_bytes for segment in segments)
        unindexed = sum(segment.lacks_index for segment in segments)
        print(
            f"{topic}-{partition}: {len(segments)} segments, {records} records, {size} bytes, "
            f"offsets {segments[0].base_offset}..{segments[-1].last_offset}, {unindexed} without index"
        )
    print(f"{len(result.segments)} segments are sound, {len(result.orphans)} orphans of older leaders")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
