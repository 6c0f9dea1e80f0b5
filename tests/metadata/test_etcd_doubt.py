"""The known outcome of a call whose connection broke, was held, or was never made."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import ABSENT, Compare, KeyValue, Put
from tests.metadata.etcd_stores import QUICK, etcd_store, put, until_answered
from tests.support.etcd_server import SHARED
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.waiting import wait_until_async

T = TypeVar("T")

# What a call may take beyond its time on a machine that is busy with other tests.
GRACE_SEC = 5.0


@pytest.fixture
def prefix() -> str:
    return f"/tests/{uuid.uuid4().hex}"


@pytest.fixture
async def direct(prefix: str) -> AsyncIterator[EtcdStore]:
    """The same keys without the proxy."""
    async with etcd_store(SHARED.endpoint(), prefix=prefix) as store:
        yield store


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    async with tcp_proxy(int(SHARED.endpoint().rpartition(":")[2])) as opened:
        yield opened


@pytest.fixture
async def store(proxy: TcpProxy, prefix: str) -> AsyncIterator[EtcdStore]:
    async with etcd_store(proxy.endpoint, prefix=prefix, timeouts=QUICK) as opened:
        await opened.get("k")
        yield opened


async def appears(store: EtcdStore, key: str) -> None:
    async def is_there() -> bool:
        return await store.get(key) is not None

    await wait_until_async(is_there, f"{key} is there")


async def sent(proxy: TcpProxy, *calls: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
    """Begin calls one by one; each has reached the proxy."""
    begun = []
    for call in calls:
        before = proxy.request_bytes
        begun.append(asyncio.create_task(call))

        async def has_arrived(before: int = before) -> bool:
            return proxy.request_bytes > before

        await wait_until_async(has_arrived, "the proxy has the request")
    return begun


async def test_a_transaction_whose_reply_is_lost_is_in_doubt_and_done(
    direct: EtcdStore, proxy: TcpProxy, store: EtcdStore
) -> None:
    proxy.forwards_replies.clear()
    writing = asyncio.ensure_future(store.transact([Compare("k", ABSENT)], [Put("k", b"done")]))
    await appears(direct, "k")
    await proxy.cut()
    with pytest.raises(StoreIndeterminateError, match="1 operations"):
        await writing


async def test_transaction_lost_in_flight_is_indeterminate(
    direct: EtcdStore, proxy: TcpProxy, store: EtcdStore
) -> None:
    proxy.forwards_requests.clear()
    (writing,) = await sent(proxy, put(store, "k"))
    await proxy.cut()
    with pytest.raises(StoreIndeterminateError):
        await writing
    assert await direct.get("k") is None


async def test_a_transaction_that_is_not_answered_is_in_doubt_in_time(
    direct: EtcdStore, proxy: TcpProxy, store: EtcdStore
) -> None:
    proxy.forwards_replies.clear()
    began = time.monotonic()
    with pytest.raises(StoreIndeterminateError, match="DEADLINE_EXCEEDED"):
        await put(store, "k")
    assert time.monotonic() - began < QUICK.call_sec + GRACE_SEC
    await appears(direct, "k")


async def test_a_transaction_without_a_connection_is_not_done(
    direct: EtcdStore, proxy: TcpProxy, store: EtcdStore
) -> None:
    await proxy.close()
    with pytest.raises(StoreUnavailableError):
        await store.get("k")
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=r"no etcd endpoint can be used: .*127\.0\.0\.1"):
        await put(store, "k")
    assert time.monotonic() - began < QUICK.call_sec + GRACE_SEC
    await proxy.listen()
    revision = await until_answered(lambda: put(store, "k", b"now"))
    assert await direct.get("k") == KeyValue(key="k", value=b"now", mod_revision=revision)


async def test_a_read_that_is_not_answered_fails_in_time(proxy: TcpProxy, store: EtcdStore) -> None:
    proxy.forwards_replies.clear()
    began = time.monotonic()
    for read in (store.get("k"), store.range("")):
        with pytest.raises(StoreUnavailableError):
            await read
    assert time.monotonic() - began < 2 * QUICK.call_sec + GRACE_SEC


async def test_a_read_goes_on_over_a_broken_connection(proxy: TcpProxy, store: EtcdStore) -> None:
    await put(store, "k")
    connections = proxy.accepted
    proxy.forwards_replies.clear()
    (reading,) = await sent(proxy, store.get("k"))
    await proxy.cut()
    proxy.forwards_replies.set()
    assert (await reading) is not None
    assert proxy.accepted > connections


async def test_leases_are_asked_for_again_over_a_broken_connection(proxy: TcpProxy, store: EtcdStore) -> None:
    proxy.forwards_replies.clear()
    (granting,) = await sent(proxy, store.grant_lease(60))
    await proxy.cut()
    proxy.forwards_replies.set()
    lease = await granting
    proxy.forwards_replies.clear()
    (renewing,) = await sent(proxy, store.renew_lease(lease))
    await proxy.cut()
    proxy.forwards_replies.set()
    assert await renewing


async def test_a_renewal_that_is_not_answered_is_no_end_of_the_lease(
    proxy: TcpProxy, store: EtcdStore
) -> None:
    lease = await store.grant_lease(60)
    proxy.forwards_replies.clear()
    with pytest.raises(StoreIndeterminateError):
        await store.renew_lease(lease)
    proxy.forwards_replies.set()
    assert await until_answered(lambda: store.renew_lease(lease))


async def test_close_ends_the_calls_in_flight(proxy: TcpProxy, store: EtcdStore) -> None:
    proxy.forwards_replies.clear()
    (writing,) = await sent(proxy, put(store, "k"))
    (reading,) = await sent(proxy, store.get("k"))
    began = time.monotonic()
    await store.close()
    with pytest.raises(StoreIndeterminateError):
        await writing
    with pytest.raises(StoreUnavailableError):
        await reading
    assert time.monotonic() - began < QUICK.attempt_sec
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get("k")


async def test_a_cancelled_call_is_cancelled(proxy: TcpProxy, store: EtcdStore) -> None:
    proxy.forwards_replies.clear()
    (writing,) = await sent(proxy, put(store, "k"))
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
