"""The partition record: what is stored is what is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.partition_record import (
    EpochStart,
    JournalPosition,
    PartitionRecord,
    ProducerRecord,
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
    epoch_end,
    epoch_of,
)
from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    OpenTransaction,
    PartitionTransactions,
)
from kafscale.formats.producer_batches import ProducerBatch

OFFSETS = st.integers(0, 2**62)
INT16 = st.integers(0, 2**15 - 1)
INT32 = st.integers(0, 2**31 - 1)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JOURNAL_IDS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?", fullmatch=True)

references = st.builds(
    lambda base, delta, **rest: SegmentReference(base_offset=base, last_offset=base + delta, **rest),
    OFFSETS,
    INT32,
    record_count=INT32,
    leader_epoch=INT32,
    size_bytes=OFFSETS,
    max_timestamp_ms=st.integers(-1, 2**62),
    object_key=KEYS,
    start=OFFSETS,
)
producers = st.builds(
    ProducerRecord,
    producer_id=OFFSETS,
    producer_epoch=st.integers(0, 2**15 - 1),
    last_timestamp_ms=OFFSETS,
    batches=st.lists(st.builds(ProducerBatch, INT32, INT32, OFFSETS), max_size=5).map(tuple),
)
positions = st.builds(
    JournalPosition,
    journal_id=JOURNAL_IDS,
    sequence=st.integers(-1, 2**62),
    topic_id=st.uuids(allow_nil=True),
)
aborted_transactions = st.builds(AbortedTransaction, OFFSETS, OFFSETS, OFFSETS, OFFSETS)
transactions = st.builds(
    PartitionTransactions,
    st.lists(st.builds(OpenTransaction, OFFSETS, INT16, OFFSETS), max_size=3).map(tuple),
    st.lists(aborted_transactions, max_size=3).map(tuple),
    OFFSETS,
)
records = st.builds(
    PartitionRecord,
    leader_epoch=st.integers(-1, 2**31 - 1),
    log_start_offset=OFFSETS,
    log_end_offset=OFFSETS,
    epochs=st.lists(st.builds(EpochStart, INT32, OFFSETS), max_size=4).map(tuple),
    segments=st.lists(references, max_size=4).map(tuple),
    producers=st.lists(producers, max_size=4).map(tuple),
    checkpoint_key=KEYS,
    checkpoint_end_offset=OFFSETS,
    journal=st.none() | positions,
    transactions=st.just(NO_TRANSACTIONS) | transactions,
)


@given(records)
def test_a_record_reads_as_it_was_written(record: PartitionRecord) -> None:
    assert decode_partition_record("record", encode_partition_record(record)) == record


@given(records, st.data())
def test_a_cut_or_extended_record_is_refused(record: PartitionRecord, data: st.DataObject) -> None:
    stored = encode_partition_record(record)
    with pytest.raises(CorruptDataError):
        decode_partition_record("record", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError, match="after the end"):
        decode_partition_record("record", stored + b"\x00")


@given(st.sampled_from([b"\x00\x01", b"\x00\x02", b"\x00\x03"]), st.binary(max_size=200))
def test_noise_is_refused_or_read_but_never_crashes(version: bytes, data: bytes) -> None:
    try:
        record = decode_partition_record("record", version + data)
    except CorruptDataError:
        return
    assert encode_partition_record(record) == version + data


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(
        UnknownFormatVersionError, match=r"partitions/orders/0: format version 4 is not known"
    ):
        decode_partition_record("partitions/orders/0", b"\x00\x04" + bytes(60))


HISTORY = PartitionRecord(
    leader_epoch=7, log_end_offset=100, epochs=(EpochStart(2, 10), EpochStart(4, 30), EpochStart(7, 90))
)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, 100)),
        (8, (-1, -1)),
        (5, (4, 90)),
        (4, (4, 90)),
        (3, (2, 30)),
        (2, (2, 30)),
        (1, (1, 10)),
    ],
)
def test_epoch_ends_are_those_of_kafkas_epoch_cache(asked: int, answer: tuple[int, int]) -> None:
    assert epoch_end(HISTORY, asked) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(5, -1), (10, 2), (29, 2), (30, 4), (100, 7)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epoch_of(HISTORY, offset) == epoch
