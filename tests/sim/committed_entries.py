"""Committed entries of journals, by the bucket alone: an entry and all below it are there, and no fence."""

from collections.abc import Iterator

from kafscale.formats.journal_entry import EntryHead, decode_cell, head_bytes
from kafscale.formats.journal_keys import EntryKey
from kafscale.journal.replay import PlacedSlice


class CommittedEntries:
    """Every journal of a bucket."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[int, tuple[EntryHead, bytes] | None]] = {}
        self._committed: dict[str, int] = {}

    def stored(self, key: EntryKey, data: bytes) -> Iterator[tuple[str, PlacedSlice, bytes]]:
        """Something was created under the key: the slices that are committed by it, with their bytes, in order."""
        name = f"{key.journal_id}/{key.sequence}"
        head = decode_cell(name, data)
        cells = self._cells.setdefault(key.journal_id, {})
        # A cell once taken is taken, also where it was collected and a fence lies there now.
        cells.setdefault(key.sequence, (head, data) if isinstance(head, EntryHead) else None)
        following = self._committed.get(key.journal_id, -1) + 1
        while (cell := cells.get(following)) is not None:
            yield from _slices(key.journal_id, *cell)
            self._committed[key.journal_id] = following
            cells[following] = (cell[0], b"")
            following += 1

    def committed_through(self, journal_id: str) -> int:
        """The newest committed sequence, -1 for none."""
        return self._committed.get(journal_id, -1)


def _slices(journal_id: str, head: EntryHead, data: bytes) -> Iterator[tuple[str, PlacedSlice, bytes]]:
    size = head_bytes("entry", data)
    for one in head.slices:
        body = data[size + one.start : size + one.start + one.size_bytes]
        yield journal_id, PlacedSlice(head.sequence, size, head.created_ms, one), body
