"""Users' credentials as stored: the bytes of the format page, damage refused by name, no secret in any text."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, KafscaleError, UnknownFormatVersionError
from kafscale.formats.topic_record import encode_fields
from kafscale.formats.user_record import (
    MAX_ITERATIONS,
    MAX_SALT_BYTES,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    UserRecord,
    decode_user_record,
    encode_user_record,
)
from kafscale.metadata import keys

KEY = keys.user("alice")
SALT, STORED, SERVER = b"salt", b"\x01" * 32, b"\x02" * 32
CREDENTIAL = ScramCredential(iterations=4096, salt=SALT, stored_key=STORED, server_key=SERVER)
PARTS = {
    "iterations": 4096,
    "salt": b64encode(SALT).decode(),
    "stored_key": b64encode(STORED).decode(),
    "server_key": b64encode(SERVER).decode(),
}


def credentials(mechanism: ScramMechanism) -> st.SearchStrategy[ScramCredential]:
    key = st.binary(min_size=mechanism.hash_bytes, max_size=mechanism.hash_bytes)
    return st.builds(
        ScramCredential,
        iterations=st.integers(MIN_ITERATIONS, MAX_ITERATIONS),
        salt=st.binary(min_size=1, max_size=MAX_SALT_BYTES),
        stored_key=key,
        server_key=key,
    )


def test_record_has_the_bytes_of_the_format_page() -> None:
    record = UserRecord("alice", {ScramMechanism.SCRAM_SHA_256: CREDENTIAL})
    assert encode_user_record(record) == (
        b'{"version":1,"scram":{"SCRAM-SHA-256":{"iterations":4096,"salt":"c2FsdA==",'
        b'"stored_key":"' + b64encode(STORED) + b'","server_key":"' + b64encode(SERVER) + b'"}}}'
    )


@given(
    name=st.text(min_size=1),
    scram=st.fixed_dictionaries({}, optional={one: credentials(one) for one in ScramMechanism}),
)
def test_record_comes_back(name: str, scram: dict[ScramMechanism, ScramCredential]) -> None:
    record = UserRecord(name, scram)
    assert decode_user_record(keys.user(name), encode_user_record(record)) == record


@given(name=st.text(min_size=1))
def test_key_has_one_segment_and_gives_the_name(name: str) -> None:
    key = keys.user(name)
    assert key.startswith("users/")
    assert key.count("/") == 1
    assert keys.user_name(key) == name


def test_mechanism_of_a_later_release_is_left_out() -> None:
    data = encode_fields({"scram": {"SCRAM-SHA-256": PARTS, "SCRAM-SHA3-512": {"more": 1}}})
    assert list(decode_user_record(KEY, data).scram) == [ScramMechanism.SCRAM_SHA_256]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("iterations", 4095),
        ("iterations", 16385),
        ("iterations", True),
        ("iterations", "4096"),
        ("salt", ""),
        ("salt", None),
        ("salt", "not base64!"),
        ("salt", b64encode(bytes(MAX_SALT_BYTES + 1)).decode()),
        ("salt", "é"),
        ("stored_key", b64encode(bytes(31)).decode()),
        ("stored_key", [1]),
        ("server_key", b64encode(bytes(64)).decode()),
    ],
)
def test_part_that_is_not_legal_is_refused_by_name(part: str, value: Any) -> None:
    data = encode_fields({"scram": {"SCRAM-SHA-256": {**PARTS, part: value}}})
    with pytest.raises(CorruptDataError, match=part) as raised:
        decode_user_record(KEY, data)
    assert all(secret not in str(raised.value) for secret in PARTS.values() if isinstance(secret, str))


@pytest.mark.parametrize("scram", [None, [], "x", {"SCRAM-SHA-512": PARTS}, {"SCRAM-SHA-256": []}])
def test_credentials_of_another_form_are_refused(scram: Any) -> None:
    with pytest.raises(CorruptDataError, match="users/alice"):
        decode_user_record(KEY, encode_fields({"scram": scram}))


def test_record_of_a_newer_release_is_refused_by_version() -> None:
    with pytest.raises(UnknownFormatVersionError, match="2"):
        decode_user_record(KEY, b'{"version":2}')


@given(st.binary(max_size=200))
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(KafscaleError):
        decode_user_record(KEY, data)


def test_no_key_is_in_a_text_of_the_record() -> None:
    shown = repr(UserRecord("alice", {ScramMechanism.SCRAM_SHA_256: CREDENTIAL}))
    assert "alice" in shown
    assert not any(repr(part) in shown for part in (SALT, STORED, SERVER))
