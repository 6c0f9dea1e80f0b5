"""Batches for clients without the codecs: the same records, and every other field as it was."""

import itertools

import pytest

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.plain_batches import PlainLimits, plain_batches
from kafscale.protocol.record_batch import (
    HEADER_SIZE,
    MIN_BATCH_LENGTH,
    BatchHeader,
    read_header,
    write_crc,
    write_header,
)
from tests.support import wire
from tests.support.batch_crc import assert_crc

MIB = 1024 * 1024
RARE = (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
VALUES = [b"a value that shrinks " * 50] * 7


def stored(codec: Codec, base_offset: int = 0, values: list[bytes] = VALUES, *, flags: int = 0) -> bytes:
    """A batch as a broker stores it: offsets and epoch stamped, a producer's fields set."""
    plain = wire.batch(values)
    body = compress(codec, plain[HEADER_SIZE:])
    header = read_header(plain, 0)._replace(
        base_offset=base_offset,
        batch_length=MIN_BATCH_LENGTH + len(body),
        partition_leader_epoch=3,
        attributes=codec | flags,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_009,
        producer_id=17,
        producer_epoch=2,
        base_sequence=40,
    )
    return _written(header, body)


def _written(header: BatchHeader, body: bytes) -> bytes:
    made = bytearray(HEADER_SIZE) + body
    write_header(made, 0, header)
    write_crc(made, 0)
    return bytes(made)


def limits(reply_bytes: int = MIB, batch_bytes: int = MIB, *, at_least_one: bool = True) -> PlainLimits:
    return PlainLimits(reply_bytes=reply_bytes, batch_bytes=batch_bytes, at_least_one=at_least_one)


@pytest.mark.parametrize(("codec", "flags"), list(itertools.product(RARE, (0, 0x08, 0x10))))
def test_a_batch_differs_in_codec_length_and_crc_only(codec: Codec, flags: int) -> None:
    plain = plain_batches(memoryview(stored(codec, 5, flags=flags)), limits())
    assert plain is not None
    sent = b"".join(plain.parts)
    assert sent == stored(Codec.NONE, 5, flags=flags)
    assert_crc(sent, 0)
    assert (plain.size_bytes, plain.offsets) == (len(sent), len(VALUES))
    assert (plain.decompressed, plain.decompressed_bytes) == (1, len(sent))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batches_that_every_client_reads_stay_as_they_are(codec: Codec) -> None:
    assert plain_batches(memoryview(stored(codec) + stored(codec, 7)), limits()) is None


def test_batches_of_several_codecs_keep_their_order() -> None:
    codecs = (Codec.SNAPPY, Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.LZ4)
    chain = b"".join(stored(codec, 7 * number) for number, codec in enumerate(codecs))
    plain = plain_batches(memoryview(chain), limits())
    assert plain is not None
    wanted = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.NONE)
    assert b"".join(plain.parts) == b"".join(stored(codec, 7 * n) for n, codec in enumerate(wanted))
    assert (plain.decompressed, plain.offsets) == (3, 35)


def test_batches_beyond_the_reply_are_left_for_the_next() -> None:
    chain = b"".join(stored(Codec.SNAPPY, 7 * number) for number in range(5))
    one = len(stored(Codec.NONE))
    plain = plain_batches(memoryview(chain), limits(2 * one + 1))
    assert plain is not None
    assert b"".join(plain.parts) == stored(Codec.NONE) + stored(Codec.NONE, 7)


def test_the_first_batch_is_given_whole_where_one_must_be() -> None:
    chain = memoryview(stored(Codec.SNAPPY) + stored(Codec.SNAPPY, 7))
    plain = plain_batches(chain, limits(1))
    assert plain is not None
    assert b"".join(plain.parts) == stored(Codec.NONE)
    nothing = plain_batches(chain, limits(1, at_least_one=False))
    assert nothing is not None
    assert (list(nothing.parts), nothing.size_bytes, nothing.offsets) == ([], 0, 0)


@pytest.mark.parametrize("codec", RARE)
def test_a_batch_that_holds_too_much_stays_as_it_is(codec: Codec) -> None:
    bomb = stored(codec, 7, [bytes(4 * MIB)])
    assert plain_batches(memoryview(bomb), limits(batch_bytes=2 * MIB)) is None
    behind = plain_batches(memoryview(stored(codec) + bomb), limits(batch_bytes=2 * MIB))
    assert behind is not None
    assert b"".join(behind.parts) == stored(Codec.NONE)


@pytest.mark.parametrize("codec", RARE)
def test_records_that_cannot_be_decompressed_stay_as_they_are(codec: Codec) -> None:
    broken = _written(read_header(stored(codec), 0)._replace(batch_length=MIN_BATCH_LENGTH + 9), b"no codec!")
    plain = plain_batches(memoryview(broken + stored(codec, 7)), limits())
    assert plain is not None
    assert b"".join(plain.parts) == broken + stored(Codec.NONE, 7)


def test_a_damaged_chain_is_refused() -> None:
    with pytest.raises(CorruptDataError):
        plain_batches(memoryview(stored(Codec.SNAPPY)[:-1]), limits())
