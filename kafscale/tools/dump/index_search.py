"""Finds one entry in an index of any size, by the offset, without reading the rest."""

from kafscale.errors import CorruptDataError
from kafscale.formats.index import ENTRY_SIZE, HEADER_SIZE, parse_index_header, read_entries
from kafscale.tools.dump.piece_reader import PieceReader


def entry_for(index: PieceReader, base_offset: int, offset: int) -> tuple[int, int]:
    """(offset, position) of the last entry at or before `offset`, else of the first; `base_offset`: the segment's.

    What it says must be checked against the segment. Raises `CorruptDataError`.
    """
    header = parse_index_header(index.name, index.view(0, HEADER_SIZE))
    count = min(header.entry_count, (index.size_bytes - HEADER_SIZE) // ENTRY_SIZE)
    if not count:
        raise CorruptDataError(index.name, "an index without an entry")

    def entry(number: int) -> tuple[int, int]:
        data = index.view(HEADER_SIZE + number * ENTRY_SIZE, ENTRY_SIZE)
        return read_entries(data, header.version, base_offset)[0]

    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if entry(middle)[0] <= offset:
            low = middle
        else:
            high = middle - 1
    return entry(low)
