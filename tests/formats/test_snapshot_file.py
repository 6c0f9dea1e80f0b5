"""A snapshot is read back as it was written, and nothing else is taken for one."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.snapshot_file import SnapshotHeader, decode_snapshot, encode_snapshot, lasting
from kafscale.metadata.store import KeyValue

ITEMS = st.dictionaries(st.text(min_size=1, max_size=20), st.binary(max_size=300), max_size=30)


def header(keys: int) -> SnapshotHeader:
    return SnapshotHeader(
        cluster_id="c", namespace="default", revision=7, created_ms=1_700_000_000_000, keys=keys
    )


def snapshot(entries: dict[str, bytes]) -> bytes:
    items = [KeyValue(key=key, value=value, mod_revision=1) for key, value in entries.items()]
    return b"".join(encode_snapshot(header(len(items)), items))


@given(ITEMS)
def test_it_is_read_back_as_it_was_written(entries: dict[str, bytes]) -> None:
    assert decode_snapshot("s", snapshot(entries)) == (header(len(entries)), entries)


@given(ITEMS, st.data())
def test_any_damage_is_found(entries: dict[str, bytes], data: st.DataObject) -> None:
    whole = snapshot(entries)
    at = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :]
    with pytest.raises((CorruptDataError, UnknownFormatVersionError), match="s"):
        decode_snapshot("s", damaged)


@given(ITEMS, st.data())
def test_a_part_is_no_snapshot(entries: dict[str, bytes], data: st.DataObject) -> None:
    whole = snapshot(entries)
    with pytest.raises((CorruptDataError, UnknownFormatVersionError)):
        decode_snapshot("s", whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
def test_anything_else_is_no_snapshot(content: bytes) -> None:
    for start in (b"", b"KFSNAP\0\1"):
        with pytest.raises((CorruptDataError, UnknownFormatVersionError)):
            decode_snapshot("s", start + content)


def test_a_large_value_comes_back_whole() -> None:
    entries = {"a": b"x" * 3_000_000, "b": bytes(range(256)) * 10_000}
    assert decode_snapshot("s", snapshot(entries))[1] == entries


def test_what_is_bound_to_a_lease_is_left_out() -> None:
    here = KeyValue(key="brokers/1", value=b"", mod_revision=1, lease=5)
    kept = dataclasses.replace(here, key="topics/t", lease=0)
    assert lasting([here, kept]) == [kept]
