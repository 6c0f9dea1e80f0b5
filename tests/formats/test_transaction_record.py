"""The transaction record: what is stored is what is read, and nothing else is."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    decode_transaction_record,
    encode_transaction_record,
)
from tests.formats.transaction_values import transaction_records

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"

ORDERS = uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")
PAYMENTS = uuid.UUID("11111111-2222-4333-8444-555555555555")

EMPTY = TransactionRecord(producer_id=4000, producer_epoch=0, timeout_ms=60_000, updated_ms=1_790_000_000_123)
DECIDED = TransactionRecord(
    producer_id=4000,
    previous_producer_id=3000,
    next_producer_id=5000,
    producer_epoch=32_767,
    last_producer_epoch=32_766,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    transaction_version=2,
    markers_stored=True,
    started_ms=1_790_000_000_123,
    updated_ms=1_790_000_000_223,
    topics=(TransactionTopic("orders", ORDERS, (0, 7)), TransactionTopic("payments", PAYMENTS, (3,))),
    groups=("billing", "billing-2"),
)


@given(transaction_records)
def test_a_record_reads_as_it_was_written(record: TransactionRecord) -> None:
    assert decode_transaction_record("record", encode_transaction_record(record)) == record


@given(transaction_records, st.data())
def test_a_cut_or_extended_record_is_refused(record: TransactionRecord, data: st.DataObject) -> None:
    stored = encode_transaction_record(record)
    with pytest.raises(CorruptDataError):
        decode_transaction_record("record", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError):
        decode_transaction_record("record", stored + b"\x00")


@given(transaction_records, st.data())
def test_damage_is_refused_or_read_but_never_crashes(record: TransactionRecord, data: st.DataObject) -> None:
    stored = bytearray(encode_transaction_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(2, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_transaction_record("record", bytes(stored))
    except CorruptDataError:
        return
    assert encode_transaction_record(read) == stored


@pytest.mark.parametrize(
    ("name", "record"), [("transaction-v1-empty", EMPTY), ("transaction-v1-decided", DECIDED)]
)
def test_the_stored_bytes_of_version_1_stay_what_they_are(name: str, record: TransactionRecord) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_transaction_record(name, stored) == record
    assert encode_transaction_record(record) == stored


def test_partitions_are_those_of_all_topics() -> None:
    assert list(DECIDED.partitions()) == [("orders", 0), ("orders", 7), ("payments", 3)]


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(
        UnknownFormatVersionError, match="transactions/7/copier: format version 2 is not known"
    ):
        decode_transaction_record("transactions/7/copier", b"\x00\x02" + bytes(80))


def _damaged(position: int, replacement: bytes) -> bytes:
    stored = bytearray(encode_transaction_record(DECIDED))
    stored[position : position + len(replacement)] = replacement
    return bytes(stored)


_STATE = 2 + 3 * 8 + 2 * 2 + 4
_TOPIC_COUNT = _STATE + 3 + 2 * 8


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b"\x00", "too short"),
        (b"\x00\x01", "unpack_from"),
        (_damaged(_STATE, b"\x06"), "state 6 is none of 0, 1, 2, 3, 4, 5"),
        (_damaged(_STATE + 1, b"\x00"), "transaction version 0 is none of 1, 2"),
        (_damaged(_STATE + 2, b"\x02"), "flag of stored markers 2"),
        (_damaged(_TOPIC_COUNT, b"\x7f\xff\xff\xff"), "2147483647 topics in"),
        (_damaged(_TOPIC_COUNT, b"\xff\xff\xff\xff"), "-1 topics in"),
        (_damaged(_TOPIC_COUNT + 6, b"zebras"), "topic 'payments' comes after 'zebras'"),
    ],
)
def test_what_is_no_transaction_record_is_refused_by_name(stored: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=f"transactions/7/copier.*{problem}"):
        decode_transaction_record("transactions/7/copier", stored)
