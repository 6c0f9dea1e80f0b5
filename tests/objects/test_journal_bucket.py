"""Two buckets as one store: the key says where an object lies, and listings are in the order of keys."""

from collections.abc import AsyncGenerator

import pytest

from kafscale.errors import ObjectNotFoundError, StoreRefusedError
from kafscale.formats.journal_keys import (
    entry_key,
    gathered_key,
    journal_bucket_prefix,
    journal_prefix,
    journals_prefix,
)
from kafscale.formats.object_keys import cluster_marker_key, segment_key
from kafscale.objects.journal_bucket import JournalBucketStore, ReplicatedReader
from tests.support.controlled_store import ControlledStore

NAMESPACE = "records"
SEGMENT = segment_key(NAMESPACE, "orders", 0, 0)
MARKER = cluster_marker_key(NAMESPACE)
OLD = entry_key(NAMESPACE, "3f2a", 0)
NEW = entry_key(NAMESPACE, "x-3f2a", 0)
NEXT = entry_key(NAMESPACE, "x-3f2a", 1)


class Buckets:
    """The two buckets, and the store that is made of them."""

    def __init__(self, *, has_journals: bool = True) -> None:
        self.records, self.journals = ControlledStore(), ControlledStore()
        self.store = JournalBucketStore(self.records, self.journals if has_journals else None, NAMESPACE)

    async def listed(self, prefix: str) -> list[str]:
        return [info.key async for info in self.store.list(prefix)]


async def test_key_decides_on_the_bucket() -> None:
    buckets = Buckets()
    for key in (SEGMENT, MARKER, OLD, NEW):
        await buckets.store.put_if_absent(key, [key.encode()])
        assert await buckets.store.get(key) == key.encode()
        assert await buckets.store.get_range(key, 1, 3) == key.encode()[1:4]
        assert await buckets.store.size_bytes(key) == len(key)
        target = bytearray(4)
        assert await buckets.store.read_into(key, 0, 4, [memoryview(target)]) == 4
        assert target == key.encode()[:4]
    assert await buckets.records.keys() == sorted([SEGMENT, MARKER, OLD])
    assert await buckets.journals.keys() == [NEW]
    await buckets.store.put(NEXT, [b"replaced"])
    assert await buckets.journals.keys() == [NEW, NEXT]


async def test_entry_of_another_namespace_is_a_record() -> None:
    buckets = Buckets()
    key = entry_key("other", "x-3f2a", 0)
    await buckets.store.put_if_absent(key, [b"entry"])
    assert await buckets.records.keys() == [key]


@pytest.mark.parametrize("prefix", ["", "_kafscale/", journals_prefix(NAMESPACE)])
async def test_wide_listing_has_both_in_order(prefix: str) -> None:
    buckets = Buckets()
    everything = sorted([SEGMENT, MARKER, OLD, NEW, NEXT, f"_kafscale/{NAMESPACE}/other"])
    for key in everything:
        await buckets.store.put_if_absent(key, [b"x"])
    # What an earlier use has left behind: not the object of that key.
    await buckets.records.put_if_absent(NEW, [b"another"])
    assert await buckets.listed(prefix) == [key for key in everything if key.startswith(prefix)]


async def test_listing_of_journals_alone_asks_one_bucket() -> None:
    buckets = Buckets()
    for key in (OLD, NEW, NEXT):
        await buckets.store.put_if_absent(key, [b"x"])
    await buckets.records.put_if_absent(entry_key(NAMESPACE, "x-3f2a", 7), [b"in the wrong bucket"])
    await buckets.journals.put_if_absent(entry_key(NAMESPACE, "3f2a", 7), [b"in the wrong bucket"])
    assert await buckets.listed(journal_prefix(NAMESPACE, "x-3f2a")) == [NEW, NEXT]
    assert await buckets.listed(journal_bucket_prefix(NAMESPACE)) == [NEW, NEXT]
    assert await buckets.listed(journal_prefix(NAMESPACE, "3f2a")) == [OLD]
    assert await buckets.listed(f"{NAMESPACE}/") == []


async def test_listing_that_is_left_ends_both() -> None:
    buckets = Buckets()
    for key in (OLD, NEW, NEXT):
        await buckets.store.put_if_absent(key, [b"x"])
    listing = buckets.store.list("")
    assert isinstance(listing, AsyncGenerator)
    assert [(await anext(listing)).key for _ in range(2)] == [OLD, NEW]
    await listing.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(listing)


async def test_deletion_reaches_both_buckets() -> None:
    buckets = Buckets()
    for key in (SEGMENT, OLD, NEW, NEXT):
        await buckets.store.put_if_absent(key, [b"x"])
    await buckets.store.delete([SEGMENT, NEW, "absent"])
    assert await buckets.records.keys() == [OLD]
    assert await buckets.journals.keys() == [NEXT]
    await buckets.store.delete([])
    with pytest.raises(ObjectNotFoundError):
        await buckets.store.get(NEW)


async def test_entries_are_refused_without_the_bucket() -> None:
    buckets = Buckets(has_journals=False)
    with pytest.raises(StoreRefusedError, match="set KAFSCALE_JOURNAL_BUCKET"):
        await buckets.store.put_if_absent(NEW, [b"a fence in the wrong place"])
    with pytest.raises(StoreRefusedError, match="set KAFSCALE_JOURNAL_BUCKET"):
        await buckets.store.get(NEW)
    with pytest.raises(StoreRefusedError, match="set KAFSCALE_JOURNAL_BUCKET"):
        await buckets.listed(journal_prefix(NAMESPACE, "x-3f2a"))
    with pytest.raises(StoreRefusedError, match="set KAFSCALE_JOURNAL_BUCKET"):
        await buckets.store.delete([OLD, NEW])
    await buckets.store.put_if_absent(OLD, [b"entry"])
    assert await buckets.listed("") == await buckets.records.keys() == [OLD]


async def test_replica_is_not_asked_for_entries() -> None:
    primary, replica = ControlledStore(), ControlledStore()
    reader = ReplicatedReader(replica, primary, NAMESPACE)
    gathered = gathered_key(NAMESPACE, "3f2a", 0)
    for key in (SEGMENT, gathered, OLD, NEW):
        await primary.put_if_absent(key, [b"primary"])
        await replica.put_if_absent(key, [b"replica"])
    assert [await reader.get(key) for key in (OLD, NEW)] == [b"primary"] * 2
    assert [await reader.get(key) for key in (SEGMENT, gathered)] == [b"replica"] * 2
