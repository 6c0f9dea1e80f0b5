"""How a broker ends the journal of another one, whose lease is gone (docs/format/journal.md).

From the progress upwards it puts fences where nothing lies, until one is there. Then it reads the progress again: a
fence at or below it stands where an entry had been collected, and does not count.
"""

from dataclasses import dataclass

from kafscale.formats.journal_record import JournalRecord


@dataclass(frozen=True, slots=True)
class Probe:
    """Put a fence at `sequence` if nothing is there, and find out what lies there."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Look:
    """There is a fence at `sequence`: read the journal's record, which must be newer than the fence."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Note:
    """The fence at `sequence` counts: write it into the journal's record, under a compare of what was read last."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The journal has ended: entries below `sequence` are committed, all of them, and no other."""

    sequence: int


Ending = Probe | Look | Note | Ended


def begun(record: JournalRecord) -> Ending:
    """The first step, from the journal's record."""
    return Ended(record.ended_at) if record.ended_at is not None else Probe(record.progress + 1)


def passed(step: Probe) -> Ending:
    """An entry lies there."""
    return Probe(step.sequence + 1)


def found_fence(step: Probe) -> Ending:
    """A fence lies there, whoever put it."""
    return Look(step.sequence)


def looked(step: Look, record: JournalRecord) -> Ending:
    """The record as it was read after the fence was found."""
    if record.ended_at is not None:
        return Ended(record.ended_at)
    return Note(step.sequence) if record.progress < step.sequence else Probe(record.progress + 1)


def noted(step: Note) -> Ending:
    """The compare held: the record says it now."""
    return Ended(step.sequence)


def note_failed(step: Note, record: JournalRecord) -> Ending:
    """The compare failed; `record` as it is now. The owner's progress went on, or somebody else was first."""
    return looked(Look(step.sequence), record)
