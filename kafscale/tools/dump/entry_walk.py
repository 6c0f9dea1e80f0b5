"""Walks an entry of a journal, a gathered object or a fence: its head, its directory, and the slices that are wanted.

Pure. A slice is walked like a segment; the head, which may have a row for each of many partitions, is read whole.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.journal_entry import (
    FIXED_BYTES,
    CellKind,
    EntryHead,
    EntrySlice,
    Fence,
    ProducerBatches,
    body_bytes,
    decode_cell,
    decode_gathered,
    head_bytes,
)
from kafscale.formats.partition_transactions import BatchKind
from kafscale.protocol.record_batch import BatchHeader
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundFence,
    FoundJournalObject,
    FoundSegmentFooter,
    FoundSlice,
    Look,
    Note,
    Problem,
)
from kafscale.tools.dump.piece_reader import PieceReader
from kafscale.tools.dump.segment_walk import SegmentWalk

_KIND = slice(6, 8)
_MOST_MARKER_BYTES = 64 * 1024
_NAMED = re.compile(r"(?:(journals|gathered)/([^/]+)/)?([0-9]{20})\.(?:entry|gathered)")


def kind_of(fixed: bytes | memoryview) -> int:
    """The kind in an object's first `FIXED_BYTES`; it may be none of `CellKind`."""
    return int.from_bytes(fixed[_KIND], "big")


@dataclass(frozen=True, slots=True)
class SliceSource:
    """A slice as a source of its own: of a cut object, what is there of it."""

    reader: PieceReader
    start: int
    size_bytes: int

    @property
    def name(self) -> str:
        """The object's."""
        return self.reader.name

    def read(self, start: int, length: int) -> bytes:
        """See `ByteSource`."""
        length = max(0, min(length, self.size_bytes - start))
        return bytes(self.reader.aside(self.start + start, length)) if length else b""


@dataclass(slots=True)
class _Seen:
    """A slice as a walk saw it, which reads `source`."""

    source: SliceSource
    headers: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    producers: ProducerBatches = field(default_factory=list)
    body_crc: int | None = None
    batches: int = 0

    def add(self, finding: Finding) -> None:
        if isinstance(finding, FoundBatch):
            self.batches += 1
            self._add_batch(finding.position, finding.header)
        elif isinstance(finding, FoundSegmentFooter):
            self.body_crc = finding.footer.body_crc

    def _add_batch(self, position: int, one: BatchHeader) -> None:
        timestamp, epoch = one.max_timestamp, one.partition_leader_epoch
        self.headers.append((one.base_offset, one.last_offset, one.record_count, timestamp, epoch))
        kind = self._kind(position, one)
        if one.producer_id >= 0 and (one.base_sequence >= 0 or kind.is_marker):
            ids = one.producer_id, one.producer_epoch
            self.producers.append((*ids, one.base_sequence, one.last_sequence, one.base_offset, kind))

    def _kind(self, position: int, one: BatchHeader) -> BatchKind:
        batch = self.source.read(position, min(one.size_bytes, _MOST_MARKER_BYTES)) if one.is_control else b""
        try:
            return kind_of_batch(one, memoryview(batch))
        except CorruptDataError:
            return BatchKind.PLAIN  # Not as its row says: that is reported.

    def problems(self, row: EntrySlice) -> Iterator[str]:
        """In what a whole slice is not what its row says."""
        if not self.headers:
            return
        bases, lasts, counts, timestamps, epochs = zip(*self.headers, strict=True)
        says = (
            ("first offset", bases[0], row.base_offset),
            ("last offset", lasts[-1], row.last_offset),
            ("number of records", sum(counts), row.record_count),
            ("largest timestamp", max(timestamps), row.max_timestamp_ms),
            ("leader epoch", max(epochs), row.leader_epoch),
            ("body's CRC-32C", self.body_crc, row.body_crc),
        )
        yield from (
            f"the {name} is {found}, its row says {in_row}" for name, found, in_row in says if found != in_row
        )
        named = row.producer_batches
        # Rows of gathered slices name none.
        if named and named != self.producers:
            yield f"it has {len(self.producers)} batches of idempotent producers, its row says {len(named)} or others"


class EntryWalk:
    """One walk. `name`: the object's key or path, which may say its journal and number."""

    def __init__(self, reader: PieceReader, look: Look, *, name: str = "") -> None:
        self._reader = reader
        self._look = look
        self._named = _NAMED.search(name)
        self._batches_left = look.max_batches

    def findings(self) -> Iterator[Finding]:
        """The findings, in the order of the object. Raises what the source's `read` raises."""
        try:
            yield from self._findings()
        except CorruptDataError as problem:
            yield Problem(text=problem.problem if problem.name == self._reader.name else str(problem))

    def _findings(self) -> Iterator[Finding]:
        reader = self._reader
        fixed = reader.view(0, FIXED_BYTES)
        total = head_bytes(reader.name, fixed)
        is_gathered = kind_of(fixed) == CellKind.GATHERED
        decode = decode_gathered if is_gathered else decode_cell
        cell = decode(reader.name, reader.view(0, total))
        yield from self._misnamed(cell)
        if isinstance(cell, Fence):
            yield FoundFence(fence=cell, size_bytes=reader.size_bytes)
            if reader.size_bytes != total:
                yield Problem(text=f"a fence has {total} bytes, this {reader.size_bytes}")
            return
        yield FoundJournalObject(
            head=cell, is_gathered=is_gathered, head_bytes=total, size_bytes=reader.size_bytes
        )
        if reader.size_bytes != total + body_bytes(cell):
            yield Problem(
                text=f"it has {reader.size_bytes} bytes, its head and its slices {total + body_bytes(cell)}"
            )
        yield from self._slices(cell, total)

    def _misnamed(self, cell: EntryHead | Fence) -> Iterator[Problem]:
        if self._named is None:
            return
        if int(self._named[3]) != cell.sequence:
            yield Problem(text=f"its number is {cell.sequence}, its name says {int(self._named[3])}")
        if self._named[2] is not None and self._named[2] != cell.journal_id:
            yield Problem(text=f"it is of journal {cell.journal_id}, its name says {self._named[2]}")

    def _slices(self, head: EntryHead, total: int) -> Iterator[Finding]:
        look = self._look
        rows = [row for row in head.slices if self._is_wanted(row)]
        for row in rows:
            yield FoundSlice(row=row, position=None if row.object_key else total + row.start)
            if not (look.verify or look.shows_batches) or self._batches_left == 0:
                continue
            if row.object_key:
                yield Note(text=f"the slice of {_name(row)} is in {row.object_key}: dump that")
            else:
                yield from self._slice(row, total + row.start)
        if not rows and (look.topic is not None or look.partition is not None):
            yield Note(text="it has no slice that was asked for")

    def _is_wanted(self, row: EntrySlice) -> bool:
        look = self._look
        return (
            look.topic in (None, row.topic)
            and look.partition in (None, row.partition)
            and (look.from_offset is None or row.last_offset >= look.from_offset)
        )

    def _slice(self, row: EntrySlice, start: int) -> Iterator[Finding]:
        there = max(0, min(row.size_bytes, self._reader.size_bytes - start))
        if not there:
            return  # The object's size was reported as a problem.
        is_damaged = False
        source = SliceSource(self._reader, start, there)
        seen = _Seen(source)
        look = replace(self._look, max_batches=self._batches_left)
        for finding in SegmentWalk(PieceReader(source), look).findings():
            seen.add(finding)
            if isinstance(finding, Problem):
                is_damaged = True
                yield Problem(text=f"slice of {_name(row)}: {finding.text}")
            else:
                yield finding
        if self._batches_left is not None:
            self._batches_left -= seen.batches
        if look.is_whole and not is_damaged:
            yield from (Problem(text=f"slice of {_name(row)}: {text}") for text in seen.problems(row))


def _name(row: EntrySlice) -> str:
    return f"{row.topic}-{row.partition}"
