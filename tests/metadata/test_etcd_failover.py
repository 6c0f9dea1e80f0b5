"""Several etcd members: one dies or stops, the quorum goes and comes back; and an endpoint of another cluster."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kafscale.errors import StoreError, StoreUnavailableError
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import Changes, Snapshot
from tests.metadata.etcd_stores import QUICK, etcd_store, put, until_answered
from tests.support.etcd_server import SHARED, EtcdCluster, EtcdServer, etcd_cluster, etcd_server
from tests.support.tcp_proxy import tcp_proxy
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path) as started:
        yield started


async def put_until_done(store: EtcdStore, key: str, value: bytes) -> int:
    return await until_answered(lambda: put(store, key, value))


async def told(events: AsyncGenerator[Snapshot | Changes, None], value: bytes) -> None:
    """The watch goes on until it tells of the value."""
    async with asyncio.timeout(PATIENCE_SEC):
        async for event in events:
            found = event.items if isinstance(event, Snapshot) else event.puts_and_deletes
            if any(getattr(change, "value", None) == value for change in found):
                return
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("trouble", [EtcdServer.kill9, EtcdServer.pause])
async def test_without_any_one_member_everything_goes_on(
    cluster: EtcdCluster, trouble: Callable[[EtcdServer], None]
) -> None:
    async with (
        etcd_store(*cluster.endpoints, timeouts=QUICK) as store,
        aclosing(store.watch("k")) as events,
    ):
        assert isinstance(await anext(events), Snapshot)
        lease = await store.grant_lease(60)
        for number, member in enumerate(cluster.members):
            trouble(member)
            value = b"without member %d" % number
            await put_until_done(store, "k", value)
            await told(events, value)
            assert await until_answered(lambda: store.renew_lease(lease))
            if trouble is EtcdServer.pause:
                member.resume()
            else:
                member.begin()
            member.wait_healthy()


async def test_without_a_quorum_calls_fail_in_time_and_go_on_with_it(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    other = next(member for member in cluster.members if member is not leader)
    async with (
        etcd_store(*cluster.endpoints, timeouts=QUICK) as store,
        aclosing(store.watch("k")) as events,
    ):
        await anext(events)
        await put_until_done(store, "k", b"before")
        for member in (leader, other):
            member.kill9()
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            await store.get("k")
        with pytest.raises(StoreError):
            await put(store, "k", b"without a quorum")
        assert time.monotonic() - began < 2 * QUICK.call_sec + 5
        for member in (leader, other):
            member.begin()
        await put_until_done(store, "k", b"after")
        await told(events, b"after")
        found = await until_answered(lambda: store.get("k"))
        assert found is not None
        assert found.value == b"after"


async def test_endpoints_that_are_away_are_passed_over(cluster: EtcdCluster) -> None:
    paused, killed, alive = cluster.members[0], "http://127.0.0.1:1", cluster.members[1]
    paused.pause()
    for _ in range(3):  # wherever in the list it begins
        async with etcd_store(paused.endpoint, killed, alive.endpoint, timeouts=QUICK) as store:
            await put_until_done(store, "k", b"value")
            assert (await store.get("k")) is not None
    paused.resume()


async def test_another_cluster_behind_the_endpoint_is_never_used(tmp_path: Path) -> None:
    home = int(SHARED.endpoint().rpartition(":")[2])
    with etcd_server(tmp_path) as other:
        async with tcp_proxy(home) as proxy, etcd_store(proxy.endpoint, timeouts=QUICK) as store:
            await put_until_done(store, "k", b"home")
            proxy.target_port = other.client_port
            await proxy.cut()
            with pytest.raises(StoreUnavailableError, match="belongs to the etcd cluster"):
                await store.get("k")
            with pytest.raises(StoreError):
                await put(store, "k", b"elsewhere")
            proxy.target_port = home
            found = await until_answered(lambda: store.get("k"))
            assert found is not None
            assert found.value == b"home"
