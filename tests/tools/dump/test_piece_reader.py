"""Pieces: small ones after a jump, large ones in sequence, and never the same byte twice on the way."""

import itertools

import pytest

from kafscale.errors import CorruptDataError
from kafscale.tools.dump.piece_reader import PieceReader
from tests.tools.dump.sources import MemorySource

DATA = bytes(itertools.islice(itertools.cycle(range(251)), 10_000))


def test_views_are_the_bytes_there() -> None:
    reader = PieceReader(MemorySource(DATA), 16, 128)
    for position, length in [(0, 4), (2, 100), (5000, 300), (4990, 20), (9990, 50), (10_000, 1), (0, 10_000)]:
        assert bytes(reader.view(position, length)) == DATA[position : position + length]


def test_straight_reader_reads_each_byte_once_in_growing_pieces() -> None:
    source = MemorySource(DATA)
    reader = PieceReader(source, 16, 1024)
    assert b"".join(bytes(reader.view(position, 50)) for position in range(0, 10_000, 50)) == DATA
    assert [start for start, _ in source.reads[1:]] == [sum(read) for read in source.reads[:-1]]
    assert max(length for _, length in source.reads) == 1024
    assert len(source.reads) < 20


def test_a_jumping_reader_reads_little() -> None:
    source = MemorySource(DATA)
    reader = PieceReader(source, 16, 1024)
    for position in range(0, 10_000, 500):
        reader.view(position, 10)
    assert sum(length for _, length in source.reads) <= 32 * 20


def test_pieces_join_to_the_range() -> None:
    reader = PieceReader(MemorySource(DATA), 16, 128)
    reader.view(90, 20)
    assert b"".join(map(bytes, reader.pieces(100, 7777))) == DATA[100:7777]
    assert list(reader.pieces(100, 100)) == []


def test_a_look_aside_does_not_lose_the_place() -> None:
    source = MemorySource(DATA)
    reader = PieceReader(source, 64, 64)
    reader.view(0, 10)
    assert bytes(reader.aside(9_000, 8)) == DATA[9_000:9_008]
    assert bytes(reader.aside(20, 8)) == DATA[20:28]
    reader.view(10, 40)
    assert source.reads == [(0, 64), (9_000, 8)]


def test_a_source_that_became_shorter_is_reported() -> None:
    source = MemorySource(DATA)
    source.size_bytes += 5
    with pytest.raises(CorruptDataError, match="it ends at byte 10000, when it was opened it had 10005"):
        PieceReader(source).view(9_999, 6)
