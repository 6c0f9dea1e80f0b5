"""The records of share groups: stored bytes, round trips, their size, and what is refused by name."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.share_start_record import (
    AS_CONFIGURED,
    ShareStartRecord,
    decode_share_start,
    encode_share_start,
)
from kafscale.formats.share_state_record import (
    MAX_DELIVERY_COUNT,
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    decode_share_state,
    encode_share_state,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records"
START_KEY, STATE_KEY = "share-starts/7/g/t/0", "share-states/7/g/t/0"
AVAILABLE, ACKNOWLEDGED, ARCHIVED = StoredShareState

START = ShareStartRecord(
    state_epoch=3, start_offset=70_000, changed_ms=1_790_000_060_000, changed_by="User:alice"
)
STATE = ShareStateRecord(
    state_epoch=3,
    leader_epoch=12,
    start_offset=70_000,
    runs=(
        StoredShareRun(70_000, 70_000, AVAILABLE, 2),
        StoredShareRun(70_001, 70_300, ACKNOWLEDGED, 1),
        StoredShareRun(70_310, 70_310, ARCHIVED, 5),
    ),
)

EPOCHS = st.integers(0, 2**31 - 1)
STARTS = st.builds(
    ShareStartRecord,
    state_epoch=EPOCHS,
    start_offset=st.integers(AS_CONFIGURED, 2**63 - 1),
    changed_ms=st.integers(0, 2**63 - 1),
    changed_by=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


@st.composite
def states(draw: st.DrawFn) -> ShareStateRecord:
    start = draw(st.integers(0, 2**62))
    offset, runs = start, []
    pieces = st.tuples(
        st.integers(0, 300), st.integers(1, 2**40), st.sampled_from(StoredShareState), st.integers(0, 40)
    )
    for gap, length, state, delivery_count in draw(st.lists(pieces, max_size=20)):
        runs.append(StoredShareRun(offset + gap, offset + gap + length - 1, state, delivery_count))
        offset += gap + length
    return ShareStateRecord(
        state_epoch=draw(EPOCHS), leader_epoch=draw(EPOCHS), start_offset=start, runs=tuple(runs)
    )


@given(STARTS)
def test_a_start_reads_as_it_was_written(record: ShareStartRecord) -> None:
    assert decode_share_start(START_KEY, encode_share_start(record)) == record


@given(states())
def test_a_state_reads_as_it_was_written(record: ShareStateRecord) -> None:
    assert decode_share_state(STATE_KEY, encode_share_state(record)) == record


@given(STARTS, states(), st.data())
def test_cut_or_extended_values_are_refused(
    start: ShareStartRecord, state: ShareStateRecord, data: st.DataObject
) -> None:
    stored = encode_share_start(start)
    for changed in (stored[: data.draw(st.integers(0, len(stored) - 1))], stored + b"\x00"):
        with pytest.raises(CorruptDataError, match=START_KEY):
            decode_share_start(START_KEY, changed)
    stored = encode_share_state(state)
    for changed in (stored[: data.draw(st.integers(0, len(stored) - 1))], stored + b"\x00"):
        with pytest.raises(CorruptDataError, match=STATE_KEY):
            decode_share_state(STATE_KEY, changed)


@given(st.binary(max_size=120))
def test_noise_is_refused_or_reads_as_it_is_written(data: bytes) -> None:
    stored = b"\x00\x01" + data
    with suppress(CorruptDataError):
        start = decode_share_start("key", stored)
        assert encode_share_start(start) == stored
    with suppress(CorruptDataError):
        state = decode_share_state("key", stored)
        again = encode_share_state(state)
        assert decode_share_state("key", again) == state
        assert len(again) <= len(stored)


@pytest.mark.parametrize(
    ("count", "most_bytes"), [(1, 4.1 * 1024), (5, 4.1 * 1024), (MAX_DELIVERY_COUNT, 10 * 1024)]
)
def test_2000_records_of_alternating_states_stay_small(count: int, most_bytes: float) -> None:
    runs = tuple(
        StoredShareRun(2**62 + number, 2**62 + number, tuple(StoredShareState)[number % 3], count)
        for number in range(2000)
    )
    record = ShareStateRecord(state_epoch=1, leader_epoch=1, start_offset=2**62, runs=runs)
    assert len(encode_share_state(record)) <= most_bytes


def test_the_stored_bytes_stay_what_they_are() -> None:
    stored = bytes.fromhex((GOLDEN / "share-start-v1.hex").read_text())
    assert encode_share_start(START) == stored
    assert decode_share_start(START_KEY, stored) == START
    stored = bytes.fromhex((GOLDEN / "share-state-v1.hex").read_text())
    assert encode_share_state(STATE) == stored
    assert decode_share_state(STATE_KEY, stored) == STATE


def test_another_version_is_refused_by_name() -> None:
    for stored, decode in (
        (encode_share_start(START), decode_share_start),
        (encode_share_state(STATE), decode_share_state),
    ):
        with pytest.raises(UnknownFormatVersionError, match="version 2"):
            decode("key", b"\x00\x02" + stored[2:])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state_epoch": -1}, "state epoch -1, legal are 0 to"),
        ({"state_epoch": 2**31}, "state epoch 2147483648, legal are"),
        ({"start_offset": -2}, "start offset -2, legal are -1 to"),
        ({"changed_by": "x" * 1025}, "of 1025 bytes, at most 1024 are legal"),
    ],
)
def test_start_that_is_not_legal_is_not_written(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_share_start(replace(START, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state_epoch": -1}, "state epoch -1, legal are 0 to"),
        ({"leader_epoch": 2**31}, "leader epoch 2147483648, legal are"),
        ({"start_offset": -1}, "start offset -1, legal are 0 to"),
        ({"start_offset": 70_001}, "run 70000 to 70000, legal are offsets in order from 70001"),
        ({"runs": (StoredShareRun(70_005, 70_004, AVAILABLE, 0),)}, "run 70005 to 70004"),
        ({"runs": STATE.runs[::-1]}, "run 70001 to 70300, legal are offsets in order from 70311"),
        ({"runs": (StoredShareRun(70_000, 70_000, AVAILABLE, 2**15),)}, "delivery count 32768 of offsets"),
    ],
)
def test_state_that_is_not_legal_is_not_written(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_share_state(replace(STATE, **change))  # type: ignore[arg-type]


def test_too_large_a_state_is_not_written() -> None:
    runs = tuple(StoredShareRun(3 * number, 3 * number, AVAILABLE, 100) for number in range(70_000))
    record = ShareStateRecord(state_epoch=0, leader_epoch=0, start_offset=0, runs=runs)
    with pytest.raises(ValueError, match="70000 runs take 280021 bytes, at most 262144 are legal"):
        encode_share_state(record)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("00000001 00 06", "state 3 at offset 5, legal are 0 to 2"),
        ("00000001 01 00 00", "a gap of 0 offsets before offset 5, legal is 1 or more"),
        ("00000001 00 07", "delivery count -1 of offsets 5 to 5"),
        ("00000007 0000", "7 runs in 2 bytes"),
        ("00000002 0000 8080", "ends within run 1 of 2"),
        ("00000001 ffffffffffffffffffff 00", "longer than 10 bytes"),
    ],
)
def test_state_that_cannot_be_read_says_why(tail: str, said: str) -> None:
    head = bytes.fromhex("0001 00000000 00000000 0000000000000005")
    with pytest.raises(CorruptDataError, match=said) as refusal:
        decode_share_state(STATE_KEY, head + bytes.fromhex(tail))
    assert STATE_KEY in str(refusal.value)
