"""Records as Arrow columns: against the decoder that makes objects, at the limits of a batch, and with damage."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafscale.arrow import record_columns as module
from kafscale.arrow.column_buffers import MAX_BYTES, MAX_HEADERS, MAX_ROWS
from kafscale.arrow.columns import arrow_schema
from kafscale.arrow.record_columns import record_columns
from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import CODECS, Codec, compress, decompress_into_room
from kafscale.protocol.record_batch import HEADER_SIZE, read_header, write_crc, write_header
from kafscale.protocol.record_builder import encode_batch, records_of
from kafscale.protocol.records import Record
from kafscale.protocol.varint import append_varint
from kafscale.reader.stored_batches import StoredBatches
from spark_jobs.source.columns import spark_schema
from tests.spark_jobs.support.oracle_rows import MAX_TIMESTAMP_MS, batch_rows, expected_rows, rows_of


def columns_of(*parts: bytes | bytearray, include_headers: bool = True) -> list[pa.RecordBatch]:
    stored = [
        StoredBatches(
            name=f"object {number}", partition=7, data=memoryview(part), first_offset=0, next_offset=2**63 - 1
        )
        for number, part in enumerate(parts)
    ]
    return list(record_columns(stored, "events", include_headers=include_headers))


def with_records(
    records: bytes, *, count: int, codec: Codec = Codec.NONE, like: bytes | None = None
) -> bytes:
    """A batch, right from the outside, around bytes that need not be records."""
    header = read_header(like or encode_batch(records_of([b"value"])), 0)
    stored = compress(codec, records)
    changed = header._replace(
        batch_length=HEADER_SIZE - 12 + len(stored),
        attributes=header.attributes & ~7 | codec,
        last_offset_delta=max(count - 1, 0),
        record_count=count,
    )
    batch = bytearray(HEADER_SIZE) + stored
    write_header(batch, 0, changed)
    write_crc(batch, 0)
    return bytes(batch)


def record_of(fields: Sequence[int], *, attributes: int = 0, rest: bytes = b"") -> bytes:
    """A record of the varints given and the bytes `rest`, with its true length before it."""
    body = bytearray([attributes])
    for field in fields:
        append_varint(body, field)
    body += rest
    record = bytearray()
    append_varint(record, len(body))
    return bytes(record + body)


# --- what usually comes

HEADERS = (("trace", b"abc"), ("empty", b""), ("null", None), ("ключ", b"\xff"))


@pytest.mark.parametrize("codec", CODECS)
def test_all_columns_of_all_kinds_of_records(codec: Codec) -> None:
    records = [
        Record(40, 1_700_000_000_123, b"key", b"value", HEADERS),
        Record(41, 1_700_000_000_000, None, b"value"),
        Record(45, -1, b"", b""),
        Record(46, 0, b"key", None, (("a", b"1"),)),
    ]
    rows = rows_of(encode_batch(records, codec=codec))
    assert rows == [
        (
            b"key",
            b"value",
            "events",
            7,
            40,
            1_700_000_000_123_000,
            0,
            [{"key": name, "value": value} for name, value in HEADERS],
        ),
        (None, b"value", "events", 7, 41, 1_700_000_000_000_000, 0, None),
        (b"", b"", "events", 7, 45, -1000, 0, None),
        (b"key", None, "events", 7, 46, 0, 0, [{"key": "a", "value": b"1"}]),
    ]


def test_the_schema_is_the_one_that_spark_has() -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value", HEADERS)])
    for include_headers in (True, False):
        (found,) = columns_of(batch, include_headers=include_headers)
        assert found.schema == arrow_schema(include_headers)
        assert found.schema.names == spark_schema(include_headers).fieldNames()


def test_headers_that_are_not_wanted_are_left_out() -> None:
    batch = encode_batch([Record(0, 5, b"key", b"value", HEADERS), Record(1, 6, None, None)])
    assert rows_of(batch, include_headers=False) == [
        (b"key", b"value", "events", 7, 0, 5000, 0),
        (None, None, "events", 7, 1, 6000, 0),
    ]


def test_log_append_time_stands_for_all_records() -> None:
    batch = encode_batch(records_of([b"a", b"b"], timestamp_ms=10), log_append_time_ms=1_600_000_000_000)
    assert [row[5:7] for row in rows_of(batch)] == [(1_600_000_000_000_000, 1)] * 2


def test_control_batches_are_no_records() -> None:
    batches = [
        encode_batch(records_of([b"a"])),
        encode_batch(records_of([b"\0\0\0\0\0\0"], base_offset=1), is_control=True, is_transactional=True),
        encode_batch(records_of([b"b"], base_offset=2), is_transactional=True),
    ]
    assert [row[1] for row in rows_of(b"".join(batches))] == [b"a", b"b"]


def test_a_header_name_that_is_not_utf_8_is_read_as_elsewhere() -> None:
    batch = encode_batch([Record(0, 0, None, None, (("é?", b"1"), ("fine", b"2")))])
    broken = bytearray(batch)
    broken[broken.index("é".encode())] = 0xFF
    write_crc(broken, 0)
    assert rows_of(broken) == expected_rows(broken)
    assert [header["key"] for header in rows_of(broken)[0][7]] == ["\ufffd\ufffd?", "fine"]


def test_only_wanted_offsets() -> None:
    data = b"".join(
        encode_batch(records_of([b"value"] * 5, base_offset=first), codec=codec)
        for first, codec in ((0, Codec.NONE), (5, Codec.ZSTD), (20, Codec.GZIP), (25, Codec.NONE))
    )
    assert [row[4] for row in rows_of(data, 3, 22)] == [3, 4, 5, 6, 7, 8, 9, 20, 21]
    assert rows_of(data, 10, 20) == []


def test_batches_without_records_are_passed_over() -> None:
    empty = with_records(b"", count=0)
    assert rows_of(empty + encode_batch(records_of([b"a"], base_offset=1)))[0][4] == 1
    assert columns_of(empty) == []
    assert columns_of() == []


# --- Arrow batches


def test_small_objects_share_arrow_batches() -> None:
    parts = [
        encode_batch(records_of([b"value"], base_offset=offset), codec=CODECS[offset % len(CODECS)])
        for offset in range(50)
    ]
    (batch,) = columns_of(*parts)
    assert [row[4] for row in batch_rows(batch)] == list(range(50))


def test_no_more_rows_than_spark_takes_at_once() -> None:
    count = 2 * MAX_ROWS + 500
    batches = [
        encode_batch(records_of([b"%d" % number for number in range(first, first + 500)], base_offset=first))
        for first in range(0, count, 500)
    ]
    found = columns_of(b"".join(batches))
    assert [batch.num_rows for batch in found] == [MAX_ROWS, MAX_ROWS, 500]
    rows = [row for batch in found for row in batch_rows(batch)]
    assert [(row[1], row[4]) for row in rows] == [(b"%d" % offset, offset) for offset in range(count)]


def test_no_more_bytes_than_a_batch_has_room_for() -> None:
    value = b"v" * (MAX_BYTES // 4)
    found = columns_of(encode_batch(records_of([value] * 7), codec=Codec.LZ4))
    assert [batch.num_rows for batch in found] == [3, 3, 1]
    assert all(row[1] == value for batch in found for row in batch_rows(batch))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_record_larger_than_a_batch_gets_one_of_its_own(codec: Codec) -> None:
    large = b"x" * (MAX_BYTES + 100)
    values = [b"before", large, b"after" * 10, b"last"]
    found = columns_of(encode_batch(records_of(values), codec=codec))
    assert [[row[1] for row in batch_rows(batch)] for batch in found] == [values[:1], values[1:2], values[2:]]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_batches_of_every_size_beside_each_other(codec: Codec) -> None:
    sizes = [100, 400_000, 600_000, 100, 3_000_000, 500_000, 500_000, 500_000, 20, 900_000, 1_200_000]
    batches = [
        encode_batch([Record(number, 0, b"%d" % size, bytes([number]) * size)], codec=codec)
        for number, size in enumerate(sizes)
    ]
    rows = rows_of(b"".join(batches))
    assert [(row[0], row[1]) for row in rows] == [
        (b"%d" % size, bytes([number]) * size) for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_large_batch_makes_room_for_the_next_ones(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def counting(*arguments: Any) -> int:
        tried.append(len(arguments[2]))
        return decompress_into_room(*arguments)

    monkeypatch.setattr(module, "decompress_into_room", counting)
    batch = encode_batch(records_of([bytes([7]) * 700_000]), codec=codec)
    rows_of(batch * 10)
    # The first one does not fit at first; with a room for one no second one is tried, which would not fit.
    assert len(tried) == 11
    assert max(tried) < 4 * 700_000


def test_more_headers_than_a_batch_has_room_for() -> None:
    few = (("name", b"value"),) * 10
    many = (("n", None),) * (MAX_HEADERS + 10)
    records = [Record(offset, 0, None, b"", headers) for offset, headers in enumerate((few, many, few))]
    batch = encode_batch(records)
    found = columns_of(batch)
    assert [len(row[7]) for one in found for row in batch_rows(one)] == [10, MAX_HEADERS + 10, 10]
    assert len(found) == 3
    # Where they are not kept they take no room.
    assert len(columns_of(batch, include_headers=False)) == 1


def test_what_was_given_out_stays_as_it_is() -> None:
    memory = bytearray(encode_batch(records_of([b"first"])))
    (found,) = columns_of(memory)
    memory[:] = bytes(len(memory))
    assert found.column("value").to_pylist() == [b"first"]


# --- timestamps


@pytest.mark.parametrize("timestamp_ms", [MAX_TIMESTAMP_MS, -MAX_TIMESTAMP_MS, -1, 0])
def test_timestamps_to_the_ends_of_sparks(timestamp_ms: int) -> None:
    batch = encode_batch([Record(0, timestamp_ms, None, b"")])
    assert rows_of(batch)[0][5] == timestamp_ms * 1000


@pytest.mark.parametrize("timestamp_ms", [MAX_TIMESTAMP_MS + 1, -MAX_TIMESTAMP_MS - 1, 2**63 - 1])
def test_timestamps_that_spark_does_not_have_are_null(timestamp_ms: int) -> None:
    """One producer cannot keep a topic from being read."""
    batch = encode_batch(
        [Record(3, 7, None, b""), Record(4, timestamp_ms, None, b""), Record(5, 8, None, b"")]
    )
    assert [row[5] for row in rows_of(batch)] == [7000, None, 8000]
    assert rows_of(batch) == expected_rows(batch)


def test_timestamps_that_do_not_fit_64_bits_are_damage() -> None:
    first = Record(0, 2**63 - 1, None, b"")
    record = record_of([1, 0, -1, -1, 0])
    batch = with_records(record, count=1, like=encode_batch([first]))
    with pytest.raises(CorruptDataError, match=f"timestamp {2**63} does not fit 64 bits"):
        rows_of(batch)


# --- damage

KEY_LENGTH, VALUE_LENGTH, HEADER_COUNT = 2, 3, 4
FIELDS = [0, 0, -1, -1, 0]
HUGE = 2**31 - 1


def altered(field: int, value: int) -> list[int]:
    return [value if number == field else old for number, old in enumerate(FIELDS)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"", 1),
        (record_of(FIELDS), 2),
        (record_of(FIELDS) + b"\0", 1),
        (record_of(FIELDS)[:-1], 1),
        (b"\xff\xff\xff\xff\xff\xff", 1),
        (b"\xff\xff\xff\xff\x0f" + bytes(10), 1),
        (bytearray(b"\x01") + bytes(10), 1),
        (b"\0", 1),
        (record_of(altered(1, -1)), 1),
        (record_of(altered(1, 1)), 1),
        (record_of(altered(KEY_LENGTH, HUGE)), 1),
        (record_of(altered(KEY_LENGTH, 3)), 1),
        (record_of(altered(VALUE_LENGTH, HUGE)), 1),
        (record_of(altered(VALUE_LENGTH, 2)), 1),
        (record_of(altered(HEADER_COUNT, -1)), 1),
        (record_of(altered(HEADER_COUNT, HUGE)), 1),
        (record_of(altered(HEADER_COUNT, 1)), 1),
        (record_of(altered(HEADER_COUNT, 1), rest=b"\x01\x01"), 1),
        (record_of(altered(HEADER_COUNT, 1), rest=b"\x02a\x04"), 1),
        (record_of(altered(HEADER_COUNT, 1), rest=b"\x06a\x01"), 1),
        (record_of(FIELDS, rest=b"\0"), 1),
        (record_of([0], rest=b"\x80" * 20), 1),
        (record_of([], rest=b"\xff" * 9 + b"\x01"), 1),
    ],
)
def test_records_that_lie_are_refused_with_a_reason(codec: Codec, records: bytes, count: int) -> None:
    batch = encode_batch(records_of([b"fine"]), codec=codec) + with_records(records, count=count, codec=codec)
    with pytest.raises(CorruptDataError) as oracles:
        expected_rows(batch)
    with pytest.raises(CorruptDataError) as found:
        rows_of(batch)
    assert found.value.name == "object"
    position = read_header(batch, 0).size_bytes
    assert found.value.problem == f"the batch at byte {position}: {oracles.value.problem}"


def test_a_negative_length_is_null_whatever_it_is() -> None:
    batch = with_records(record_of([0, 0, -5, -(2**31), 0]), count=1)
    assert rows_of(batch) == expected_rows(batch)
    assert rows_of(batch)[0][:2] == (None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 1),
        ("batch_length", -1),
        ("batch_length", 48),
        ("batch_length", 2**31 - 1),
        ("base_offset", -1),
        ("last_offset_delta", -1),
        ("record_count", -1),
        ("record_count", 7),
    ],
)
def test_headers_that_lie_are_refused(field: str, value: int) -> None:
    batch = bytearray(encode_batch(records_of([b"value"] * 3)))
    write_header(batch, 0, read_header(batch, 0)._replace(**{field: value}))
    with pytest.raises(CorruptDataError, match="object: batch at position 0"):
        rows_of(batch)


def test_an_end_beyond_all_offsets_is_refused() -> None:
    batch = bytearray(encode_batch(records_of([b"value"] * 3)))
    write_header(batch, 0, read_header(batch, 0)._replace(base_offset=2**63 - 2))
    with pytest.raises(CorruptDataError, match="object: the batch at byte 0"):
        rows_of(batch)


@pytest.mark.parametrize("length", [1, 12, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 5])
def test_a_cut_batch_is_refused(length: int) -> None:
    batch = encode_batch(records_of([b"value"] * 3))
    with pytest.raises(CorruptDataError):
        rows_of(batch + batch[:length])


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(encode_batch(records_of([b"value"])))
    write_header(batch, 0, read_header(batch, 0)._replace(attributes=6))
    with pytest.raises(
        CorruptDataError, match="object: the batch at byte 0: compression codec 6 is not one of 0 to 4"
    ):
        rows_of(batch)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_records_that_do_not_decompress_name_their_object(codec: Codec) -> None:
    batch = bytearray(encode_batch(records_of([b"value" * 100] * 5), codec=codec))
    batch[HEADER_SIZE:] = bytes(len(batch) - HEADER_SIZE)
    with pytest.raises(CorruptDataError, match="object: the batch at byte 0: "):
        rows_of(batch)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_may_not_grow_without_end(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS_BYTES", 1_000_000)
    assert rows_of(encode_batch(records_of([bytes(990_000)]), codec=codec))
    with pytest.raises(CorruptDataError, match=r"object: .* to more than 1000000 bytes"):
        rows_of(encode_batch(records_of([bytes(1_000_000)]), codec=codec))
