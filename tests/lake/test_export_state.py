"""The export state in a table survives the ways in which tables live."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake import export_state
from kafscale.lake.export_state import (
    ExportState,
    ExportStateError,
    decode_state,
    encode_state,
    find_state,
    lag,
    property_of,
)
from kafscale.lake.ranges import union

TOPIC = "orders"
NAME = "kafscale.export.orders"


def state(commit_id: str = "c1", end: int = 10) -> ExportState:
    return ExportState(
        topic=TOPIC, topic_id="t", commit_id=commit_id, starts={0: 0}, exported={0: ((0, end),)}
    )


def summary(of: ExportState) -> dict[str, str]:
    return {"operation": "append", NAME: encode_state(of)}


ranges = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5).map(union)
by_partition = st.dictionaries(st.integers(0, 2000), ranges.filter(bool), max_size=5)


@given(by_partition, by_partition, st.dictionaries(st.integers(0, 2000), st.integers(0, 2**62)))
def test_it_is_read_back_as_it_was_written(
    exported: dict[int, tuple[tuple[int, int], ...]],
    gaps: dict[int, tuple[tuple[int, int], ...]],
    starts: dict[int, int],
) -> None:
    written = ExportState(
        topic=TOPIC, topic_id="t", commit_id="c", starts=starts, exported=exported, gaps=gaps
    )
    assert decode_state(TOPIC, encode_state(written)) == written


@given(st.text())
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ExportStateError, match=NAME):
        decode_state(TOPIC, text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 3),
        ("version", 2),
        ("topic", "other"),
        ("commit_id", ""),
        ("starts", {"0": -1}),
        ("starts", {"x": 1}),
        ("exported", {"0": [[5, 3]]}),
        ("exported", {"0": [[0, 5], [4, 9]]}),
        ("exported", {"0": [[0, True]]}),
        ("gaps", [[0, 1]]),
    ],
)
def test_fields_that_are_not_legal_are_refused(field: str, value: object) -> None:
    fields = json.loads(encode_state(state())) | {field: value}
    with pytest.raises(ExportStateError, match=NAME):
        decode_state(TOPIC, json.dumps(fields))


def large_state() -> ExportState:
    return ExportState(
        topic=TOPIC,
        topic_id="t",
        commit_id="c",
        starts=dict.fromkeys(range(1000), 5),
        exported={index: ((5, 1_000_000 + index),) for index in range(1000)},
        gaps={7: ((1_000_007, 1_000_009),)},
    )


def test_a_large_state_is_packed_and_read_back() -> None:
    text = encode_state(large_state())
    assert json.loads(text)["version"] == 2
    assert len(text) < 4_000, "a plain one takes 35,000 bytes"
    assert decode_state(TOPIC, text) == large_state()


def test_a_small_state_stays_what_people_and_older_programs_read() -> None:
    assert json.loads(encode_state(state()))["version"] == 1


def test_a_large_state_of_an_older_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_state, "MOST_PLAIN_BYTES", 1_000_000)
    plain = encode_state(large_state())
    assert json.loads(plain)["version"] == 1
    assert decode_state(TOPIC, plain) == large_state()


def test_packed_offsets_that_are_not_legal_are_refused() -> None:
    fields = json.loads(encode_state(large_state())) | {"offsets": "nonsense"}
    with pytest.raises(ExportStateError, match=NAME):
        decode_state(TOPIC, json.dumps(fields))


def test_a_table_that_says_nothing_has_nothing() -> None:
    assert find_state(TOPIC, [{"operation": "append"}], {"owner": "me"}, []) == ExportState(topic=TOPIC)


def test_the_newest_snapshot_with_a_state_overrides_the_property() -> None:
    older, newer = summary(state("c1", 5)), summary(state("c2", 10))
    compaction = {"operation": "replace"}
    found = find_state(TOPIC, [compaction, newer, older], {NAME: encode_state(state("c3", 15))}, [])
    assert found.commit_id == "c2"


def test_the_property_outlives_the_expiry_of_snapshots() -> None:
    found = find_state(TOPIC, [{"operation": "replace"}], {NAME: encode_state(state("c2"))}, [])
    assert found.commit_id == "c2"


def test_a_rolled_back_table_has_the_older_snapshots_state() -> None:
    older, newer = summary(state("c1", 5)), summary(state("c2", 10))
    found = find_state(TOPIC, [older], {NAME: encode_state(state("c2", 10))}, [older, newer])
    assert found.position(0) == 5


def test_a_table_rolled_back_behind_every_export_is_refused() -> None:
    with pytest.raises(ExportStateError, match="rolled back"):
        find_state(
            TOPIC, [{"operation": "append"}], {NAME: encode_state(state("c2"))}, [summary(state("c2"))]
        )


def test_topics_in_one_table_do_not_meet() -> None:
    assert property_of("orders") != property_of("orders.2")
    assert find_state("other", [summary(state())], {NAME: encode_state(state())}, []).commit_id == ""


def test_the_position_skips_backfilled_offsets_and_gaps() -> None:
    ahead = ExportState(
        topic=TOPIC,
        commit_id="c",
        starts={0: 10, 1: 7},
        exported={0: ((0, 4), (10, 20), (25, 30))},
        gaps={0: ((20, 25),)},
    )
    assert (ahead.position(0), ahead.position(1), ahead.position(2)) == (30, 7, None)
    assert lag(ahead, {0: 33, 1: 7, 2: 5}) == {0: 3, 1: 0, 2: 5}


def test_a_known_start_stays() -> None:
    after = state().after(
        commit_id="c2", topic_id="t", starts={0: 4, 1: 8}, exported={0: ((10, 12),)}, gaps={1: ((8, 9),)}
    )
    assert after.starts == {0: 0, 1: 8}
    assert after.exported == {0: ((0, 12),), 1: ()} or after.exported == {0: ((0, 12),)}
    assert after.position(1) == 9
