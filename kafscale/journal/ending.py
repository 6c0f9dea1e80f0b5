"""How a broker ends the journal of another one, whose lease is gone (docs/format/journal.md).

First it leaps ahead and puts a fence far above: its owner may still write, faster than a broker can probe, but not
past that. Then it puts fences from the progress upwards where nothing lies, until one is there. Then it reads the
progress again: a fence at or below it stands where an entry had been collected, and does not count.
"""

from dataclasses import dataclass

from kafscale.formats.journal_record import JournalRecord

LEAP = 16
"""How far above the progress the first fence is put: more than an owner has entries in flight."""


@dataclass(frozen=True, slots=True)
class Leap:
    """Put a fence at `to` if nothing is there, and find out what lies there. `sequence`: where probing begins."""

    sequence: int
    to: int


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


Ending = Leap | Probe | Look | Note | Ended


def begun(record: JournalRecord, leap: int = LEAP) -> Ending:
    """The first step, from the journal's record."""
    if record.ended_at is not None:
        return Ended(record.ended_at)
    return Leap(record.progress + 1, record.progress + 1 + leap)


def leapt(step: Leap) -> Ending:
    """A fence lies there, of any broker: no entry from there on counts any more."""
    return Probe(step.sequence)


def leapt_too_short(step: Leap) -> Ending:
    """An entry lies there: the owner is farther than its record says."""
    return Leap(step.sequence, step.to + max(1, step.to - step.sequence))


def passed(step: Probe) -> Ending:
    """An entry lies there."""
    return Probe(step.sequence + 1)


def found_fence(step: Probe) -> Ending:
    """A fence lies there, of any broker."""
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
    """The compare failed; `record` as it is now. The owner's progress went on, or another broker was first."""
    return looked(Look(step.sequence), record)
