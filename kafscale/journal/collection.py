"""Which entries of a journal may be deleted (docs/format/journal.md)."""

from collections.abc import Iterable, Mapping

from kafscale.formats.journal_record import JournalRecord


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
