"""The findings of a dump, one value for each thing that its reader wants to see."""

from dataclasses import dataclass
from typing import TypeAlias

from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.journal_entry import EntryHead, EntrySlice, Fence
from kafscale.formats.segment import SegmentFooter, SegmentHeader
from kafscale.protocol.control_records import ControlRecord
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The part of a file that is wanted.

    `verify`: read every byte and check it. `records`: look into the batches. `from_offset`: begin with the
    batch that holds this offset, or the first after it. `max_batches`: and see this many. `topic`, `partition`: of
    entries and gathered objects these slices alone.
    """

    verify: bool = False
    records: bool = False
    from_offset: int | None = None
    max_batches: int | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if nothing of the file is left out."""
        return self.from_offset is None and self.max_batches is None

    @property
    def shows_batches(self) -> bool:
        """True if the batches of slices are wanted, not only their rows."""
        return self.records or self.topic is not None or self.partition is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegmentHeader:
    """A segment begins. `size_bytes`: the whole file's."""

    header: SegmentHeader
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatch:
    """A batch. `position`: of its first byte in the file. `is_valid`: its CRC is right; None: not looked at."""

    position: int
    header: BatchHeader
    is_valid: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record of the last batch. `control`: what it says, in a control batch."""

    batch: BatchHeader
    record: Record
    control: ControlRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegmentFooter:
    """A segment ends. `is_valid`: the body's CRC is right; None: not looked at."""

    footer: SegmentFooter
    is_valid: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundIndexHeader:
    """An index begins. `base_offset` of its segment; None where nothing says it."""

    version: int
    entry_count: int
    interval: int
    base_offset: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An index entry. `is_relative`: the offset counts from the segment's first one, which is not known."""

    offset: int
    position: int
    is_relative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A whole checkpoint."""

    checkpoint: Checkpoint
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJournalObject:
    """An entry of a journal, or a gathered object, begins; its slices follow the head."""

    head: EntryHead
    is_gathered: bool
    head_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFence:
    """A whole fence."""

    fence: Fence
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSlice:
    """A row of the directory. `position`: where its segment begins; None: in the object that the row names."""

    row: EntrySlice
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something is wrong with the file; `text` says what and where."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that a reader should know and that is no fault of the file."""

    text: str


Finding: TypeAlias = (
    FoundSegmentHeader
    | FoundBatch
    | FoundRecord
    | FoundSegmentFooter
    | FoundIndexHeader
    | FoundEntry
    | FoundCheckpoint
    | FoundJournalObject
    | FoundFence
    | FoundSlice
    | Problem
    | Note
)
