"""Entries of a journal that count by its objects alone, and those that may be deleted (docs/format/journal.md)."""

from collections.abc import Iterable, Mapping

from kafscale.formats.journal_record import JournalRecord


def counted_through(declared: Mapping[int, int]) -> int:
    """The newest sequence that counts, -1 for none: every entry up to it that is there is committed.

    `declared`: what each entry that is there declares to be committed, by its sequence; fences are left out. Up to
    the highest declaration entries may have been collected, and late fences may stand in their place. Above it
    nothing was collected, so that the first gap or fence is the end.
    """
    through = max(declared.values(), default=-1)
    while through + 1 in declared:
        through += 1
    return through


def collectable(
    record: JournalRecord,
    committed_through: int,
    declared: Mapping[int, int],
    needed: Iterable[int],
) -> frozenset[int]:
    """The sequences that may be deleted now, of entries that are there.

    `record` as read from the metadata store; `committed_through`: the newest entry that is known to be committed, at
    most the last one below the fence. `declared`: what each entry that is there declares to be committed, by its
    sequence. `needed`: entries that a partition record names, or that have a slice which is behind the position of a
    record with this journal, as read after everything else. Such a need only ever ends.
    """
    if record.ended_at is not None:
        committed_through = min(committed_through, record.ended_at - 1)
    # A rebuild from the bucket alone counts what an entry that is left declares, and that up to the first gap.
    witnessed = max(
        (through for sequence, through in declared.items() if sequence <= committed_through), default=-1
    )
    end = min(record.progress, witnessed)
    kept = set(needed)
    return frozenset(sequence for sequence in declared if sequence <= end and sequence not in kept)
