"""The slices of journals and gathered objects under a data folder, read by docs/format/journal.md alone.

It imports nothing of kafscale.
"""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import crc32c

FIXED = struct.Struct(">4sHHIIIiqqqH")
ROW = struct.Struct(">16siiqIIqQQIBHHH")
PRODUCER = struct.Struct(">qhiiq")
ENTRY, FENCE, GATHERED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSlice:
    """A slice that counts. `image`: a whole segment.

    `producers`: id, epoch, first and last sequence, base offset of each batch that has them; None: not noted.
    """

    path: Path
    topic_id: uuid.UUID
    topic: str
    partition: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    max_timestamp: int
    producers: tuple[tuple[int, int, int, int, int], ...] | None
    image: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    kind: int
    sequence: int
    committed_through: int
    slices: tuple[FoundSlice, ...]


class AuditError(AssertionError):
    """A stored file breaks its format."""


def find_slices(folder: Path) -> Iterator[FoundSlice]:
    """The slices of every entry that is committed and of every gathered object. Raises `AuditError`.

    Those of deleted topics are left out: a topic of the same name may be there again.
    """
    deleted = {path.name for path in folder.rglob("deleted/*")}
    return (one for one in _all_slices(folder) if str(one.topic_id) not in deleted)


def _all_slices(folder: Path) -> Iterator[FoundSlice]:
    journals: dict[Path, dict[int, _Head]] = {}
    for path in sorted(folder.rglob("*.entry")):
        head = _read(path)
        _require(head.kind in (ENTRY, FENCE), path, f"kind {head.kind}")
        journals.setdefault(path.parent, {})[head.sequence] = head
    for heads in journals.values():
        entries = {sequence: head for sequence, head in heads.items() if head.kind == ENTRY}
        through = max((head.committed_through for head in entries.values()), default=-1)
        while through + 1 in entries:
            through += 1
        for sequence, head in sorted(entries.items()):
            if sequence <= through:
                yield from head.slices
    for path in sorted(folder.rglob("*.gathered")):
        head = _read(path)
        _require(head.kind == GATHERED, path, f"kind {head.kind}")
        yield from head.slices


def _read(path: Path) -> _Head:
    try:
        return _head(path, path.read_bytes())
    except (struct.error, UnicodeDecodeError) as problem:
        raise AuditError(f"{path}: {problem}") from problem


def _head(path: Path, data: bytes) -> _Head:
    _require(len(data) >= FIXED.size, path, f"{len(data)} bytes")
    magic, version, kind, crc, rest, count, _, sequence, through, created_ms, id_bytes = FIXED.unpack_from(
        data
    )
    head_bytes = FIXED.size + rest
    _require(magic == b"KJNL" and version == 1, path, f"magic {magic!r}, version {version}")
    _require(len(data) >= head_bytes, path, f"{len(data)} bytes of a head of {head_bytes}")
    _require(crc32c.crc32c(data[12:head_bytes], crc32c.crc32c(data[:8])) == crc, path, "the head's CRC")
    _require(created_ms > 0, path, f"created at {created_ms}")
    _require(sequence == int(path.stem), path, f"sequence {sequence} under that name")
    _require(not (kind == FENCE and count), path, f"a fence with {count} slices")
    most = sequence - 1 if kind == ENTRY else -1
    _require(-1 <= through <= most, path, f"committed through {through}")
    _require(data[FIXED.size : FIXED.size + id_bytes].decode() == path.parent.name, path, "journal id")
    position, end = FIXED.size + id_bytes, head_bytes
    slices: list[FoundSlice] = []
    for _ in range(count):
        row = ROW.unpack_from(data, position)
        topic_id, partition, epoch, base_offset, delta, records, timestamp, start, size = row[:9]
        body_crc, kind_of_slice, topic_bytes, key_bytes, producer_count = row[9:]
        position += ROW.size
        topic = data[position : position + topic_bytes].decode()
        position += topic_bytes + key_bytes
        producers = tuple(
            PRODUCER.unpack_from(data, position + PRODUCER.size * number) for number in range(producer_count)
        )
        position += PRODUCER.size * producer_count
        _require(kind == ENTRY or not producer_count, path, f"{producer_count} producers")
        _require(kind_of_slice == 0 and not key_bytes, path, f"a slice of kind {kind_of_slice}")
        _require(head_bytes + start == end, path, f"a slice at {start}, the one before ends at {end}")
        before = (slices[-1].topic_id.bytes, slices[-1].partition) if slices else (b"", -1)
        _require((topic_id, partition) > before, path, f"{topic}-{partition} is out of order")
        image = data[end : end + size]
        _require(len(image) == size, path, f"half a slice of {topic}-{partition}")
        _require(crc32c.crc32c(image[32:-16]) == body_crc, path, f"the CRC of {topic}-{partition}")
        end += size
        slices.append(
            FoundSlice(
                path=path,
                topic_id=uuid.UUID(bytes=topic_id),
                topic=topic,
                partition=partition,
                base_offset=base_offset,
                last_offset=base_offset + delta,
                record_count=records,
                leader_epoch=epoch,
                max_timestamp=timestamp,
                producers=None if kind == GATHERED else producers,
                image=image,
            )
        )
    _require(position == head_bytes, path, f"{head_bytes - position} bytes behind the directory")
    _require(end == len(data), path, f"{len(data) - end} bytes behind the last slice")
    return _Head(kind=kind, sequence=sequence, committed_through=through, slices=tuple(slices))


def _require(condition: bool, path: Path, problem: str) -> None:
    if not condition:
        raise AuditError(f"{path}: {problem}")
