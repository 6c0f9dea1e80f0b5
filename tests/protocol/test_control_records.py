"""Control records: what Kafka writes into its transaction markers, and what is no such thing."""

import pytest

from kafscale.errors import CorruptDataError
from kafscale.protocol.control_records import ControlRecord, parse_control_record

END_MARKER = b"\0\0\0\0\0\7"


def test_the_end_of_a_transaction() -> None:
    commit = parse_control_record(b"\0\0\0\1", END_MARKER)
    assert (commit, commit.type_name) == (ControlRecord(1, 7), "COMMIT")
    assert parse_control_record(b"\0\0\0\0", END_MARKER).type_name == "ABORT"


def test_later_versions_may_have_more() -> None:
    assert parse_control_record(b"\0\5\0\1more", b"\0\5\0\0\1\0more") == ControlRecord(1, 256)


@pytest.mark.parametrize(("type_id", "name"), [(2, "LEADER_CHANGE"), (5, "KRAFT_VERSION"), (77, "UNKNOWN")])
def test_other_kinds_are_named(type_id: int, name: str) -> None:
    found = parse_control_record(bytes((0, 0, 0, type_id)), None)
    assert (found.type_name, found.coordinator_epoch) == (name, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, END_MARKER),
        (b"\0\0\0", END_MARKER),
        (b"\xff\xff\0\1", END_MARKER),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_what_is_none_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptDataError, match="control record"):
        parse_control_record(key, value)
