"""Segments of any batches survive the round trip, and no bytes whatever make the reader fall over."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.segment import HEADER_SIZE
from kafscale.protocol.compression import Codec
from tests.formats.segments import batch, parse_segment, segment_of, verify_segment

batches = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(list(Codec))), min_size=1, max_size=4
)


def laid_out(base_offset: int, parts: list[tuple[int, int, Codec]]) -> list[bytes]:
    """Batches from (gap before it, record count, codec)."""
    laid = []
    for gap, count, codec in parts:
        laid.append(batch(base_offset + gap, count, codec=codec))
        base_offset += gap + count
    return laid


SEGMENT = segment_of(laid_out(7, [(0, 3, Codec.NONE), (2, 2, Codec.ZSTD), (0, 1, Codec.NONE)]))


@given(
    base_offset=st.integers(0, 2**62),
    parts=batches,
    codec=st.sampled_from(list(Codec)),
    created_ms=st.integers(0, 2**62),
)
def test_a_segment_comes_back_as_it_went(
    base_offset: int, parts: list[tuple[int, int, Codec]], codec: Codec, created_ms: int
) -> None:
    laid = laid_out(base_offset, parts)
    segment = parse_segment("s", segment_of(laid, codec=codec, created_ms=created_ms))
    verified = verify_segment(segment)
    assert [bytes(segment.data[at : at + header.size_bytes]) for at, header in verified] == laid
    assert segment.header.message_count == sum(count for _, count, _ in parts)
    assert segment.header.codec is codec
    assert segment.header.created_ms == created_ms


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    refuses_or_reads(data)
    refuses_or_reads(SEGMENT[:HEADER_SIZE] + data + SEGMENT[-16:])


@given(st.data())
def test_a_changed_segment_is_noticed(data: st.DataObject) -> None:
    """All but the flags, the creation time and the reserved bytes, which nothing else in the file tells."""
    position = data.draw(st.integers(0, len(SEGMENT) - 1))
    value = data.draw(st.integers(1, 255))
    changed = bytearray(SEGMENT)
    changed[position] ^= value
    free = position in range(6, 8) or position in range(20, 32)
    assert refuses_or_reads(bytes(changed)) is free


@given(st.integers(0, len(SEGMENT)), st.integers(0, len(SEGMENT)), st.binary(max_size=80))
def test_a_segment_with_a_piece_replaced_is_refused_or_read(start: int, length: int, piece: bytes) -> None:
    refuses_or_reads(SEGMENT[:start] + piece + SEGMENT[start + length :])


def refuses_or_reads(data: bytes) -> bool:
    """True if the bytes pass as a segment; any error but the format's own gets through."""
    try:
        verify_segment(parse_segment("s", data))
    except CorruptDataError as problem:
        assert problem.name == "s"
        return False
    return True
