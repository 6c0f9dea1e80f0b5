"""Counts a journal's committed entries from its objects alone (docs/format/journal.md)."""

from collections.abc import Mapping


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
