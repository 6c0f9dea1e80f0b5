"""A journal's record and keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.journal_keys import (
    MAX_SEQUENCE,
    EntryKey,
    entry_key,
    journal_id_problem,
    journal_prefix,
    journals_prefix,
    parse_entry_key,
)
from kafscale.formats.journal_record import (
    JournalRecord,
    decode_journal_record,
    encode_journal_record,
)

SEQUENCES = st.integers(0, MAX_SEQUENCE)
IDS = st.from_regex(r"[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?", fullmatch=True)


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**62), st.none() | st.integers(1, 1000))
def test_a_record_is_read_as_it_was_written(broker_id: int, progress: int, behind: int | None) -> None:
    ended_at = None if behind is None else progress + behind
    record = JournalRecord(broker_id=broker_id, progress=progress, ended_at=ended_at)
    assert decode_journal_record("r", encode_journal_record(record)) == record


@pytest.mark.parametrize("ended_at", [0, 4, 5])
def test_an_end_at_or_below_the_progress_is_refused(ended_at: int) -> None:
    stored = encode_journal_record(JournalRecord(broker_id=1, progress=5, ended_at=ended_at))
    with pytest.raises(CorruptDataError, match=f"progress 5, ended at {ended_at}"):
        decode_journal_record("r", stored)


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_read_alike(data: bytes) -> None:
    try:
        record = decode_journal_record("r", data)
    except (CorruptDataError, UnknownFormatVersionError):
        return
    assert encode_journal_record(record) == data


@given(IDS, SEQUENCES)
def test_a_key_is_parsed_as_it_was_made(journal_id: str, sequence: int) -> None:
    key = entry_key("default", journal_id, sequence)
    assert key.startswith(journal_prefix("default", journal_id))
    assert key.startswith(journals_prefix("default"))
    assert journal_id_problem(journal_id) is None
    assert parse_entry_key(key) == EntryKey("default", journal_id, sequence)


def test_a_key_stays_as_documented() -> None:
    assert entry_key("default", "12-ab", 7) == "_kafscale/default/journals/12-ab/00000000000000000007.entry"


@pytest.mark.parametrize("journal_id", ["", "-a", "a-", "a/b", "a" * 65, "ä", "a.b", "a\n"])
def test_a_journal_id_that_is_not_legal_is_named(journal_id: str) -> None:
    assert "is not legal" in str(journal_id_problem(journal_id))


@pytest.mark.parametrize(
    "key",
    [
        "_kafscale/default/journals/12-ab/7.entry",
        "_kafscale/default/journals/12-ab/00000000000000000007.kfs",
        "_kafscale/default/journals/-ab/00000000000000000007.entry",
        "_kafscale/.default/journals/12-ab/00000000000000000007.entry",
        "default/journals/12-ab/00000000000000000007.entry",
        f"_kafscale/default/journals/12-ab/{MAX_SEQUENCE + 1:020d}.entry",
        "_kafscale/default/journals/12-ab/00000000000000000007.entry/",
    ],
)
def test_another_key_is_none_of_an_entry(key: str) -> None:
    assert parse_entry_key(key) is None
