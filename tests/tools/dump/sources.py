"""Sources for dumps in tests, and what the walks find in them."""

from collections.abc import Callable

from kafscale.formats.object_keys import SegmentKey
from kafscale.tools.dump.findings import Finding, Look, Note, Problem
from kafscale.tools.dump.index_walk import IndexWalk
from kafscale.tools.dump.piece_reader import PieceReader
from kafscale.tools.dump.segment_walk import MAX_RECORDS_BYTES, SegmentWalk

VERIFY = Look(verify=True)
EVERYTHING = Look(verify=True, records=True)


class MemorySource:
    """Bytes that remember what was read of them."""

    def __init__(self, data: bytes, name: str = "file") -> None:
        self.data = data
        self.name = name
        self.size_bytes = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.reads.append((start, length))
        return self.data[start : start + length]


class MadeSource:
    """A source of any size, whose bytes are made when they are read."""

    def __init__(self, size_bytes: int, make: Callable[[int, int], bytes]) -> None:
        self.name = "made"
        self.size_bytes = size_bytes
        self._make = make
        self.bytes_read = 0
        self.longest_read = 0

    def read(self, start: int, length: int) -> bytes:
        self.bytes_read += length
        self.longest_read = max(self.longest_read, length)
        return self._make(start, min(length, self.size_bytes - start))


def walk_segment(
    data: bytes,
    look: Look = VERIFY,
    *,
    key: SegmentKey | None = None,
    index: bytes | None = None,
    max_records_bytes: int = MAX_RECORDS_BYTES,
) -> list[Finding]:
    """The findings of a segment's walk."""
    walk = SegmentWalk(
        PieceReader(MemorySource(data), 64, 1024),
        look,
        key=key,
        index=None if index is None else PieceReader(MemorySource(index, "index"), 16, 64),
        max_records_bytes=max_records_bytes,
    )
    return list(walk.findings())


def walk_index(
    data: bytes, look: Look = VERIFY, *, key: SegmentKey | None = None, segment: bytes | None = None
) -> list[Finding]:
    """The findings of an index's walk."""
    beside = None if segment is None else PieceReader(MemorySource(segment, "segment"), 64, 1024)
    return list(IndexWalk(PieceReader(MemorySource(data), 16, 64), look, key=key, segment=beside).findings())


def problems(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if isinstance(finding, Problem)]


def notes(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if isinstance(finding, Note)]
