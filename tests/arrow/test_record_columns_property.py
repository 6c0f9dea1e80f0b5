"""Any records become the columns that the other decoder reads; any damage is refused, and nothing beside it read."""

import random
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.formats.partition_transactions import AbortedTransaction
from kafscale.protocol.compression import CODECS, Codec, compress
from kafscale.protocol.record_batch import HEADER_SIZE, read_header, walk, write_crc, write_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.reader.aborted_batches import AbortedBatches
from kafscale.reader.records import records_of
from kafscale.reader.stored_batches import StoredBatches
from tests.spark_jobs.support.guarded_memory import GuardedMemory
from tests.spark_jobs.support.oracle_rows import expected_rows, outcome, rows_of
from tests.support.nightly import by_day
from tests.support.waiting import PATIENCE_SEC

REPOSITORY = Path(__file__).resolve().parents[2]
FUZZED_BATCHES = 2000

# Whoever reads beyond these kills the tests.
GUARDED = GuardedMemory(1 << 20)

values = st.none() | st.binary(max_size=150)
headers = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), values), max_size=4
)
# The difference of two must fit 64 bits, as it does on the wire: of -2^62 and 2^62 it does not.
timestamps = st.integers(-1, 2**45) | st.integers(-(2**53), 2**53) | st.integers(1 - 2**62, 2**62)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> bytes:
    records, offset = [], base_offset
    for _ in range(draw(st.integers(1, 8))):
        records.append(Record(offset, draw(timestamps), draw(values), draw(values), tuple(draw(headers))))
        offset += draw(st.integers(1, 300))
    return encode_batch(
        records,
        codec=draw(st.sampled_from(CODECS)),
        log_append_time_ms=draw(st.none() | st.integers(-1, 2**50)),
        is_control=draw(st.integers(0, 9)) == 0,
        producer_id=draw(st.integers(-1, 3)),
        is_transactional=draw(st.booleans()),
    )


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    body, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 5))):
        batch = draw(batches(offset))
        offset = read_header(batch, 0).last_offset + 1 + draw(st.integers(0, 50))
        body += batch
    return body


@given(body=bodies(), data=st.data())
@settings(max_examples=by_day(20, by_night=1_000))
def test_batches_of_aborted_transactions_are_left_out(body: bytes, data: st.DataObject) -> None:
    # A producer's transactions do not overlap.
    taken: dict[int, int] = {}
    aborted = []
    offsets = [header.base_offset for _, header in walk(body, 0, len(body), "body")]
    starts = st.sampled_from(offsets) if offsets else st.integers(0, 9)
    for _ in range(data.draw(st.integers(0, 6))):
        producer_id, first = data.draw(st.integers(-1, 3)), data.draw(starts)
        last = first + data.draw(st.integers(0, 3000))
        if first > taken.get(producer_id, -1):
            taken[producer_id] = last
            aborted.append(AbortedTransaction(producer_id, first, last, first))
    view = GUARDED.holding(body)
    expected = outcome(lambda view: expected_rows(view, aborted=aborted), view)
    assert outcome(lambda view: rows_of(view, aborted=aborted), view) == expected
    batches = StoredBatches(
        name="object",
        partition=0,
        data=view,
        first_offset=0,
        next_offset=2**63 - 1,
        aborted=AbortedBatches(aborted),
    )
    if isinstance(expected, list):
        assert [placed.record.offset for placed in records_of(batches)] == [row[4] for row in expected]


@given(body=bodies(), data=st.data())
@settings(max_examples=by_day(24, by_night=1_500))
def test_the_columns_hold_what_the_records_are(body: bytes, data: st.DataObject) -> None:
    view = GUARDED.holding(body)
    assert outcome(rows_of, view) == outcome(expected_rows, view)
    if body:
        start, end = read_header(body, 0).base_offset - 1, read_header(body, 0).last_offset + 600
        first, following = data.draw(st.integers(start, end)), data.draw(st.integers(start, end))
        assert outcome(lambda view: rows_of(view, first, following), view) == outcome(
            lambda view: expected_rows(view, first, following), view
        )


@given(body=bodies())
@settings(max_examples=50)
def test_without_headers_the_other_columns_are_the_same(body: bytes) -> None:
    view = GUARDED.holding(body)
    assert outcome(lambda view: rows_of(view, include_headers=False), view) == outcome(
        lambda view: expected_rows(view, include_headers=False), view
    )


@given(body=bodies(), data=st.data())
@settings(max_examples=by_day(24, by_night=1_500))
def test_changed_bytes_are_refused_or_read_alike(body: bytes, data: st.DataObject) -> None:
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.just(len(changed)) | st.integers(0, len(changed)))
    view = GUARDED.holding(bytes(changed[:length]))
    assert outcome(rows_of, view) == outcome(expected_rows, view)


@given(
    records=st.binary(max_size=60),
    count=st.integers(0, 5),
    last_delta=st.integers(0, 200),
    codec=st.sampled_from(CODECS),
    is_append_time=st.booleans(),
)
@settings(max_examples=by_day(40, by_night=3_000))
def test_any_bytes_in_place_of_records(
    records: bytes, count: int, last_delta: int, codec: Codec, is_append_time: bool
) -> None:
    view = GUARDED.holding(enclosed(records, count, max(last_delta, count - 1, 0), codec, is_append_time))
    assert outcome(rows_of, view) == outcome(expected_rows, view)


def enclosed(
    records: bytes, count: int, last_delta: int, codec: Codec = Codec.NONE, is_append_time: bool = False
) -> bytes:
    """A batch whose header and CRC are right, around any bytes."""
    template = encode_batch([Record(10, 1_700_000_000_000, None, b"")])
    stored = compress(codec, records)
    batch = bytearray(HEADER_SIZE) + stored
    header = read_header(template, 0)._replace(
        batch_length=len(batch) - 12,
        attributes=int(codec) | (8 if is_append_time else 0),
        last_offset_delta=last_delta,
        record_count=count,
    )
    write_header(batch, 0, header)
    write_crc(batch, 0)
    return bytes(batch)


def fuzz(seed: int, count: int) -> int:
    """Damage records in many ways; how many of the batches were still read. Compared with the oracle each time."""
    rng = random.Random(seed)
    read = 0
    for _ in range(count):
        records = [
            Record(
                10 + index,
                rng.choice([0, 1_700_000_000_000, -1]),
                rng.choice([None, b"", rng.randbytes(rng.randrange(20))]),
                rng.choice([None, rng.randbytes(rng.randrange(200))]),
                tuple(("h" * rng.randrange(4), rng.choice([None, b"x"])) for _ in range(rng.randrange(3))),
            )
            for index in range(rng.randrange(1, 6))
        ]
        raw = bytearray(encode_batch(records)[HEADER_SIZE:])
        for _ in range(rng.randrange(3)):
            position = rng.randrange(len(raw))
            raw[position] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), raw[position] ^ 2])
        cut = raw[: rng.choice([len(raw), len(raw), rng.randrange(len(raw) + 1)])]
        view = GUARDED.holding(enclosed(bytes(cut), len(records), len(records) - 1 + rng.randrange(2)))
        found = outcome(rows_of, view)
        assert found == outcome(expected_rows, view), bytes(view).hex()
        read += found != "refused"
    return read


def test_damage_never_makes_it_read_what_is_not_there() -> None:
    """In a process of its own, which would be killed."""
    seed = random.randrange(2**32)
    code = f"from {__name__} import fuzz; print(fuzz({seed}, {FUZZED_BATCHES}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.returncode} {done.stderr[-2000:]}"
    read = int(done.stdout)
    assert FUZZED_BATCHES // 10 < read < FUZZED_BATCHES * 9 // 10, f"seed {seed}: {read} were read"
