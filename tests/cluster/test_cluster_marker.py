"""The cluster marker: claimed by one cluster, read by all, and never replaced."""

import asyncio

import pytest

from kafscale.cluster.marker import Marker, claim_marker, decode_marker, encode_marker, read_marker
from kafscale.errors import CorruptDataError, StoreIndeterminateError, UnknownFormatVersionError
from kafscale.formats.object_keys import cluster_marker_key
from kafscale.formats.topic_record import decode_fields
from tests.support.controlled_store import ControlledStore

KEY = "_kafscale/production/cluster"


async def test_a_namespace_belongs_to_the_first_who_claims_it() -> None:
    store = ControlledStore()
    assert await read_marker(store, "production") is None
    assert await claim_marker(store, "production", "first") == "first"
    assert await claim_marker(store, "production", "second") == "first"
    assert await claim_marker(store, "production", "first") == "first"
    assert await read_marker(store, "production") == "first"
    assert await claim_marker(store, "staging", "second") == "second"


async def test_two_claims_at_once_return_the_same_cluster() -> None:
    store = ControlledStore()
    one, other = await asyncio.gather(
        claim_marker(store, "production", "one"), claim_marker(store, "production", "other")
    )
    assert one == other == await read_marker(store, "production")


async def test_a_claim_of_unknown_outcome_is_read_back() -> None:
    store = ControlledStore()
    store.fail("put_if_absent", KEY, StoreIndeterminateError("no answer"))
    assert await claim_marker(store, "production", "first", retry_delay_sec=0) == "first"
    store.fail("put_if_absent", KEY, StoreIndeterminateError("no answer"))
    assert await claim_marker(store, "production", "second", retry_delay_sec=0) == "first"


def test_the_stored_bytes_are_those_of_the_format_page() -> None:
    assert cluster_marker_key("production") == KEY
    assert encode_marker("abc") == b'{"version":2,"cluster_id":"abc"}'
    assert decode_marker(KEY, encode_marker("abc")) == Marker("abc")
    named = b'{"version":2,"cluster_id":"abc","journal_bucket":"journals"}'
    assert encode_marker("abc", "journals") == named
    assert decode_marker(KEY, named) == Marker("abc", "journals")


async def test_marker_of_the_first_version_is_renewed() -> None:
    store = ControlledStore()
    await store.put_if_absent(KEY, [b'{"version":1,"cluster_id":"abc"}'])
    assert await claim_marker(store, "production", "first") == "abc"
    assert await store.get(KEY) == encode_marker("abc")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":1}', b'{"version":1,"cluster_id":""}', b'{"version":1,"cluster_id":7}']
)
def test_a_damaged_marker_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match=KEY):
        decode_marker(KEY, data)


async def test_marker_of_a_later_version_is_left_as_it_is() -> None:
    store = ControlledStore()
    await store.put_if_absent(KEY, [b'{"version":3,"cluster_id":"abc"}'])
    with pytest.raises(UnknownFormatVersionError):
        await claim_marker(store, "production", "first")


async def test_marker_of_a_release_without_journals_is_renewed() -> None:
    store = ControlledStore()
    await store.put_if_absent(KEY, [b'{"version":1,"cluster_id":"abc"}'])
    assert await read_marker(store, "production") == "abc"
    assert await claim_marker(store, "production", "another") == "abc"
    assert await store.get(KEY) == encode_marker("abc")


def test_release_without_journals_refuses_the_marker_of_this_one() -> None:
    """Its `recover` would leave out what lies in journals; it takes version 1 alone."""
    with pytest.raises(UnknownFormatVersionError, match="version 2"):
        decode_fields(KEY, encode_marker("abc"), 1)
