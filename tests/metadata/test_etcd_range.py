"""Large ranges in pages of one revision, transactions that are too large for etcd, and prefixes that share it."""

import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from kafscale.errors import LeaseEndedError, StoreUnavailableError
from kafscale.metadata.etcd.calls import EtcdCalls, Repeat, Result, Send
from kafscale.metadata.etcd.codec import EtcdCodec
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.metadata.etcd.endpoints import EtcdEndpoints
from kafscale.metadata.etcd.reader import FIRST_PAGE_KEYS, MAX_PAGE_KEYS, PAGE_BYTES, EtcdReader
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import Delete, Put
from tests.metadata.etcd_stores import QUICK, etcd_store, put
from tests.support.etcd_server import SHARED, EtcdServer, etcd_server


class CountedCalls(EtcdCalls):
    """Counts calls, and does something after each."""

    def __init__(self, endpoints: EtcdEndpoints, config: EtcdConfig) -> None:
        super().__init__(endpoints, config, QUICK, random.Random(0))
        self.count = 0
        self.after: Callable[[], Awaitable[object]] | None = None

    async def call(self, what: str, send: Send[Result], repeat: Repeat) -> Result:
        answer = await super().call(what, send, repeat)
        self.count += 1
        if self.after is not None:
            await self.after()
        return answer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """One whose revisions the test may compact."""
    with etcd_server(tmp_path) as started:
        yield started


@pytest.fixture
async def store(server: EtcdServer) -> AsyncIterator[EtcdStore]:
    async with etcd_store(server.endpoint, prefix="/r") as opened:
        yield opened


@pytest.fixture
async def calls(server: EtcdServer) -> AsyncIterator[CountedCalls]:
    config = EtcdConfig(endpoints=(server.endpoint,), prefix="/r")
    endpoints = EtcdEndpoints(config, EtcdCodec("/r").prefix, QUICK, random.Random(0))
    yield CountedCalls(endpoints, config)
    await endpoints.close()


async def fill(store: EtcdStore, count: int, value: bytes) -> list[str]:
    keys = [f"k/{number:05}" for number in range(count)]
    for first in range(0, count, 50):
        await store.transact([], [Put(key, value) for key in keys[first : first + 50]])
    return keys


async def test_a_large_range_comes_in_pages_of_one_revision(store: EtcdStore, calls: CountedCalls) -> None:
    keys = await fill(store, 3000, b"old")
    await put(store, "l", b"behind the range")
    revision = await put(store, "a", b"before the range")

    async def write() -> None:
        await store.transact([], [Put(keys[-1], b"new"), Delete(keys[-2]), Put("k/99999", b"new")])

    calls.after = write
    codec = EtcdCodec("/r")
    snapshot = await EtcdReader(calls, codec).range(*codec.range("k/"))
    assert [(item.key, item.value) for item in snapshot.items] == [(key, b"old") for key in keys]
    assert snapshot.revision == revision
    assert calls.count == 1 + -(-(3000 - FIRST_PAGE_KEYS) // MAX_PAGE_KEYS)
    assert (await store.range("k/")).items[-1].value == b"new"


async def test_pages_of_large_values_hold_fewer_keys(store: EtcdStore, calls: CountedCalls) -> None:
    await fill(store, 2 * FIRST_PAGE_KEYS, bytes(25_000))
    codec = EtcdCodec("/r")
    snapshot = await EtcdReader(calls, codec).range(*codec.range("k/"))
    assert len(snapshot.items) == 2 * FIRST_PAGE_KEYS
    assert calls.count > 1 + FIRST_PAGE_KEYS * 25_000 // PAGE_BYTES


async def test_range_compacted_between_pages_begins_again(
    server: EtcdServer, store: EtcdStore, calls: CountedCalls
) -> None:
    keys = await fill(store, FIRST_PAGE_KEYS + 1, b"old")

    async def compact_once() -> None:
        calls.after = None
        server.compact(await put(store, keys[0], b"new"))

    calls.after = compact_once
    codec = EtcdCodec("/r")
    snapshot = await EtcdReader(calls, codec).range(*codec.range("k/"))
    assert [item.key for item in snapshot.items] == keys
    assert snapshot.items[0].value == b"new"


async def test_a_range_that_is_always_compacted_away_is_given_up(
    server: EtcdServer, store: EtcdStore, calls: CountedCalls
) -> None:
    keys = await fill(store, FIRST_PAGE_KEYS + 1, b"old")

    async def compact() -> None:
        server.compact(await put(store, keys[0]))

    calls.after = compact
    codec = EtcdCodec("/r")
    with pytest.raises(StoreUnavailableError, match="compacted"):
        await EtcdReader(calls, codec).range(*codec.range("k/"))


@pytest.mark.parametrize("size_bytes", [1_600_000, 3_000_000])
async def test_too_large_transaction_is_refused_with_its_size(size_bytes: int) -> None:
    async with etcd_store(SHARED.endpoint()) as store:
        with pytest.raises(
            ValueError, match=rf"1 operations and {str(size_bytes)[:2]}\d+ bytes.*max-request"
        ):
            await store.transact([], [Put("k", bytes(size_bytes))])
        assert (await store.range("")).items == ()
        await put(store, "k", bytes(1_500_000))


async def test_clusters_that_share_an_etcd_do_not_see_each_other() -> None:
    name = f"/shared/{uuid.uuid4().hex}"
    async with (
        etcd_store(SHARED.endpoint(), prefix=name) as one,
        etcd_store(SHARED.endpoint(), prefix=f"{name}0") as two,
    ):
        await put(one, "k", b"1")
        await put(two, "k", b"2")
        assert [item.value for item in (await one.range("")).items] == [b"1"]
        assert [item.value for item in (await two.range("")).items] == [b"2"]


async def test_the_error_names_the_lease_that_has_ended() -> None:
    async with etcd_store(SHARED.endpoint()) as store:
        leases = [await store.grant_lease(60) for _ in range(3)]
        puts = [Put(f"k{lease}", b"v", lease) for lease in leases]
        await store.revoke_lease(leases[1])
        with pytest.raises(LeaseEndedError) as raised:
            await store.transact([], puts)
        assert raised.value.lease == leases[1]
