"""The inspection of a segment: what it learns, in pieces of any size, and every fault that it finds."""

import pytest

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.segment import body_crc, encode_footer, encode_header
from kafscale.log.reading.segment_inspection import MAX_PLAUSIBLE_EPOCH, SequencedBatch, Span
from kafscale.protocol.record_batch import read_header
from tests.formats.segments import SAMPLE_BUCKET, segment_of, stored_segments
from tests.tools.recovery.recovery_bucket import batch, inspect, inspected, key_of

BATCHES = [
    batch(100, 3, 4, producer=(7, 0, 10)),
    batch(103, 2, 4),
    batch(105, 1, 5, producer=(7, 0, 13)),
    batch(110, 4, 5, producer=(8, 1, 0)),
]
SEGMENT = segment_of(BATCHES, created_ms=77)
KEY = key_of(BATCHES)
MERGED_KEY = key_of(BATCHES, merged=True)


def patched(position: int, replacement: bytes, data: bytes = SEGMENT) -> bytes:
    position %= len(data)
    return data[:position] + replacement + data[position + len(replacement) :]


@pytest.mark.parametrize("piece_bytes", [1, 7, 31, 60, 100, 1000, 100_000])
def test_the_result_is_the_same_in_pieces_of_any_size(piece_bytes: int) -> None:
    found = inspect(KEY, SEGMENT, piece_bytes)
    assert (found.base_offset, found.last_offset, found.record_count) == (100, 113, 10)
    assert (found.size_bytes, found.created_ms, found.is_merged) == (len(SEGMENT), 77, False)
    assert found.max_timestamp_ms == 1_700_000_000_113
    assert found.spans == (Span(100, 104, 4), Span(105, 105, 5), Span(110, 113, 5))
    assert found.leader_epoch == 5
    assert found.sequenced == (
        SequencedBatch(7, 0, 10, 12, 100),
        SequencedBatch(7, 0, 13, 13, 105),
        SequencedBatch(8, 1, 0, 3, 110),
    )


def test_a_producers_first_and_newest_five_batches_are_kept() -> None:
    found = inspected(*(batch(n, 1, 0, producer=(1, 0, n)) for n in range(20)))
    assert [one.base_offset for one in found.sequenced] == [0, 15, 16, 17, 18, 19]


def test_batches_differ_by_content_and_by_offset() -> None:
    one, other = inspected(batch(0, 1, 3), batch(1, 1, 3)), inspected(batch(1, 1, 3), batch(2, 1, 3))
    assert one.batches.between(1, 1) == other.batches.between(1, 1) != b""
    assert one.batches.between(0, 1) != other.batches.between(1, 2)
    assert one.batches.between(5, 9) == b""
    assert inspected(batch(1, 1, 3, text="else")).batches.between(1, 1) != one.batches.between(1, 1)


@pytest.mark.parametrize("epoch", [-1, -7, MAX_PLAUSIBLE_EPOCH + 1, 2**31 - 1])
def test_what_can_be_no_epoch_is_none(epoch: int) -> None:
    assert inspected(batch(0, 2, epoch), batch(2, 1, -1)).spans == (Span(0, 2, -1),)


def test_segments_of_another_writer_are_read() -> None:
    found = [inspect(key, data) for key, data, _ in stored_segments(SAMPLE_BUCKET)]
    assert sum(one.record_count for one in found) == 70 + 600 + 600
    assert {one.leader_epoch for one in found} == {-1}


@pytest.mark.parametrize("piece_bytes", [50, 100_000])
def test_every_flipped_byte_of_the_body_is_found(piece_bytes: int) -> None:
    for position in range(32, len(SEGMENT) - 16):
        flipped = patched(position, bytes([SEGMENT[position] ^ 0x40]))
        with pytest.raises(CorruptDataError, match=KEY):
            inspect(KEY, flipped, piece_bytes)


@pytest.mark.parametrize("size", [0, 1, 31, 47, 48, 100, len(SEGMENT) - 1])
def test_a_cut_segment_is_found(size: int) -> None:
    with pytest.raises(CorruptDataError, match=KEY):
        inspect(KEY, SEGMENT[:size])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(patched(0, b"X"), "starts with", id="magic"),
        pytest.param(patched(-1, b"X"), "ends with", id="footer magic"),
        pytest.param(patched(15, b"\x63"), "header and footer say", id="base offset"),
        pytest.param(patched(19, b"\x63"), "header and footer say", id="message count"),
        pytest.param(patched(-5, b"\x63"), "header and footer say", id="last offset"),
        pytest.param(patched(-16, b"\x00\x00"), "the footer says", id="body CRC"),
        pytest.param(segment_of(BATCHES[1:]), "wrong key", id="another key's segment"),
    ],
)
def test_a_fault_around_the_body_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem):
        inspect(KEY, data)


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(UnknownFormatVersionError):
        inspect(KEY, patched(5, b"\x02"))


def test_a_batch_that_breaks_its_own_crc_alone_is_found() -> None:
    body = b"".join(BATCHES)
    body = body[:70] + bytes([body[70] ^ 1]) + body[71:]
    header = SEGMENT[:32]
    data = header + body + encode_footer(body_crc=body_crc([body]), last_offset=113)
    with pytest.raises(CorruptDataError, match="batch at position"):
        inspect(KEY, data)


def test_batches_out_of_order_are_found() -> None:
    body = BATCHES[1] + BATCHES[0]
    first = read_header(body, 0)
    header = encode_header(codec=first.codec, base_offset=103, message_count=5, created_ms=0)
    data = header + body + encode_footer(body_crc=body_crc([body]), last_offset=102)
    with pytest.raises(CorruptDataError, match="follows offset"):
        inspect(KEY, data)


def test_a_segment_without_a_batch_is_found() -> None:
    first = read_header(BATCHES[0], 0)
    header = encode_header(codec=first.codec, base_offset=100, message_count=0, created_ms=0)
    with pytest.raises(CorruptDataError, match="without a batch"):
        inspect(KEY, header + encode_footer(body_crc=0, last_offset=100))


def test_a_merged_segment_must_end_where_its_key_says() -> None:
    assert inspect(MERGED_KEY, SEGMENT).is_merged
    with pytest.raises(CorruptDataError, match="wrong key"):
        inspect(key_of(BATCHES[:1], merged=True), SEGMENT)
