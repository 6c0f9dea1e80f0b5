"""Markers: what is stored is what is read, and nothing else is."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.marker_record import MarkerRecord, decode_marker_record, encode_marker_record
from tests.formats.transaction_values import marker_records

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"

COMMIT = MarkerRecord(
    transactional_id="copier-7",
    commit=True,
    producer_epoch=3,
    coordinator_epoch=12,
    transaction_version=2,
    decided_ms=1_790_000_000_223,
    topic_id=uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"),
)
GROUP_ABORT = MarkerRecord(
    transactional_id="copier-7",
    commit=False,
    producer_epoch=1,
    coordinator_epoch=12,
    transaction_version=1,
    decided_ms=1_790_000_000_223,
)


@given(marker_records)
def test_a_marker_reads_as_it_was_written(marker: MarkerRecord) -> None:
    assert decode_marker_record("marker", encode_marker_record(marker)) == marker


@given(marker_records, st.data())
def test_a_cut_or_extended_marker_is_refused(marker: MarkerRecord, data: st.DataObject) -> None:
    stored = encode_marker_record(marker)
    with pytest.raises(CorruptDataError):
        decode_marker_record("marker", stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CorruptDataError):
        decode_marker_record("marker", stored + b"\x00")


@given(st.binary(max_size=80))
def test_noise_is_refused_or_read_but_never_crashes(noise: bytes) -> None:
    try:
        marker = decode_marker_record("marker", b"\x00\x01" + noise)
    except CorruptDataError:
        return
    assert encode_marker_record(marker) == b"\x00\x01" + noise


@pytest.mark.parametrize(
    ("name", "marker"), [("marker-v1-commit", COMMIT), ("marker-v1-group-abort", GROUP_ABORT)]
)
def test_the_stored_bytes_of_version_1_stay_what_they_are(name: str, marker: MarkerRecord) -> None:
    stored = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert decode_marker_record(name, stored) == marker
    assert encode_marker_record(marker) == stored


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownFormatVersionError, match="partition-markers/orders/0/7: format version 9"):
        decode_marker_record("partition-markers/orders/0/7", b"\x00\x09" + bytes(60))


@pytest.mark.parametrize(("position", "problem"), [(18, "decision 7"), (19, "transaction version 7")])
def test_an_unknown_decision_or_version_is_refused(position: int, problem: str) -> None:
    stored = bytearray(encode_marker_record(COMMIT))
    stored[position] = 7
    with pytest.raises(CorruptDataError, match=problem):
        decode_marker_record("marker", bytes(stored))
