"""Watches on a real etcd: over breaks and restarts, past compaction, large, many, and with slow watchers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import grpc
import pytest
from aetcd import rpc

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.store import Changes, Delete, KeyValue, Put, Snapshot
from tests.metadata.etcd_stores import QUICK, etcd_store, put, until_answered
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.waiting import PATIENCE_SEC, wait_until_async

Events = AsyncGenerator[Snapshot | Changes, None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path) as started:
        yield started


@pytest.fixture
async def proxy(server: EtcdServer) -> AsyncIterator[TcpProxy]:
    async with tcp_proxy(server.client_port) as opened:
        yield opened


async def take(events: Events) -> Snapshot | Changes:
    async with asyncio.timeout(PATIENCE_SEC):
        return await anext(events)


async def changed(events: Events, count: int) -> list[KeyValue | Delete]:
    """The next changes; fails when a snapshot comes instead."""
    found: list[KeyValue | Delete] = []
    while len(found) < count:
        event = await take(events)
        assert isinstance(event, Changes)
        found += event.puts_and_deletes
    return found


async def test_a_watch_goes_on_where_it_broke(server: EtcdServer, proxy: TcpProxy) -> None:
    async with (
        etcd_store(proxy.endpoint, prefix="/w") as store,
        etcd_store(server.endpoint, prefix="/w") as direct,
        aclosing(store.watch("k")) as events,
    ):
        await take(events)
        for number in range(5):
            await put(direct, "k", b"seen %d" % number)
            seen = await changed(events, 1)
            await proxy.close()
            for part in range(3):
                await put(direct, f"k{part}", b"missed %d" % number)
                await direct.transact([], [Delete(f"k{part}")])
            await proxy.listen()
            seen += await changed(events, 6)
            kinds = [each.value if isinstance(each, KeyValue) else None for each in seen]
            assert kinds == [b"seen %d" % number] + [b"missed %d" % number, None] * 3


async def test_a_watch_survives_restarts_of_etcd(server: EtcdServer) -> None:
    async with etcd_store(server.endpoint) as store, aclosing(store.watch("k")) as events:
        await take(events)
        for number in range(2):
            server.kill9()
            server.start()
            await store.get("k")
            revision = await put(store, "k", b"%d" % number)
            assert await changed(events, 1) == [
                KeyValue(key="k", value=b"%d" % number, mod_revision=revision)
            ]


async def test_a_watch_survives_a_pause_of_etcd(server: EtcdServer) -> None:
    async with (
        etcd_store(server.endpoint, timeouts=QUICK) as store,
        aclosing(store.watch("k")) as events,
    ):
        await take(events)
        server.pause()
        with pytest.raises(StoreUnavailableError, match="etcd"):
            await store.get("k")
        server.resume()
        revision = await until_answered(lambda: put(store, "k", b"after"))
        seen = await changed(events, 1)
        while seen[-1] != KeyValue(key="k", value=b"after", mod_revision=revision):  # of attempts in doubt
            seen += await changed(events, 1)


async def test_what_was_compacted_away_comes_as_a_snapshot(server: EtcdServer, proxy: TcpProxy) -> None:
    async with (
        etcd_store(proxy.endpoint, prefix="/w") as store,
        etcd_store(server.endpoint, prefix="/w") as direct,
        aclosing(store.watch("")) as events,
        aclosing(store.watch_key("kept")) as kept,
    ):
        for each in (events, kept):
            await take(each)
        await put(direct, "kept", b"1")
        await put(direct, "gone", b"1")
        await changed(events, 2)
        await changed(kept, 1)
        await proxy.close()
        await direct.transact([], [Delete("gone"), Put("kept", b"2")])
        revision = await put(direct, "new", b"2")
        server.compact(revision)
        await proxy.listen()
        snapshot = await take(events)
        assert isinstance(snapshot, Snapshot)
        assert {item.key: item.value for item in snapshot.items} == {"kept": b"2", "new": b"2"}
        again = await take(kept)
        assert isinstance(again, Snapshot)
        assert [item.value for item in again.items] == [b"2"]
        revision = await put(direct, "kept", b"3")
        later = KeyValue(key="kept", value=b"3", mod_revision=revision)
        assert await changed(events, 1) == [later]
        assert await changed(kept, 1) == [later]


async def test_what_is_larger_than_a_message_of_etcd_arrives_whole(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    """One answer of the resumed watch holds all of these, and etcd cuts it into fragments."""
    async with (
        etcd_store(proxy.endpoint, prefix="/w") as store,
        etcd_store(server.endpoint, prefix="/w") as direct,
        aclosing(store.watch("")) as events,
    ):
        await take(events)
        await proxy.close()
        for number in range(6):
            value = bytes([number]) * 400_000
            await direct.transact([], [Put(f"k/{part}", value) for part in range(3)])
        await proxy.listen()
        seen: dict[str, bytes] = {}
        while seen != {f"k/{part}": bytes([5]) * 400_000 for part in range(3)}:
            event = await take(events)
            assert isinstance(event, Changes)
            seen |= {each.key: each.value for each in event.puts_and_deletes if isinstance(each, KeyValue)}
            assert len(set(seen.values())) == 1, "a transaction came in parts"


async def test_a_watcher_that_is_too_slow_starts_over(server: EtcdServer) -> None:
    async with (
        etcd_store(server.endpoint, max_backlog_bytes=100_000) as store,
        aclosing(store.watch("slow/")) as slow,
        aclosing(store.watch("")) as quick,
    ):
        for events in (slow, quick):
            await take(events)
        for number in range(10):
            await put(store, "slow/a", bytes([number]) * 50_000)
            await changed(quick, 1)
        event = await take(slow)
        if isinstance(event, Changes):  # what was there before the limit was passed
            event = await take(slow)
        assert isinstance(event, Snapshot)
        assert [item.value for item in event.items] == [bytes([9]) * 50_000]
        revision = await put(store, "slow/b", b"next")
        assert await changed(slow, 1) == [KeyValue(key="slow/b", value=b"next", mod_revision=revision)]


async def test_a_thousand_watches_share_one_stream_and_survive_a_break(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    async with (
        etcd_store(proxy.endpoint, prefix="/w") as store,
        etcd_store(server.endpoint, prefix="/w") as direct,
    ):
        watches = [store.watch_key(f"k/{number}") for number in range(1000)]
        for event in await asyncio.gather(*(take(events) for events in watches)):
            assert isinstance(event, Snapshot)
        assert server.metric("etcd_debugging_mvcc_watch_stream_total") == 1
        assert store.watcher_count == 1000
        await proxy.close()
        for first in range(0, 1000, 100):
            await direct.transact([], [Put(f"k/{first + part}", b"%d" % first) for part in range(100)])
        await proxy.listen()
        for number, events in enumerate(watches):
            (change,) = await changed(events, 1)
            assert isinstance(change, KeyValue)
            assert (change.key, change.value) == (f"k/{number}", b"%d" % (number // 100 * 100))
        for events in watches:
            await events.aclose()
        assert store.watcher_count == 0

        async def none_is_left() -> bool:
            return server.metric("etcd_debugging_mvcc_watcher_total") == 0

        await wait_until_async(none_is_left, "etcd has no watch left")


async def test_a_watch_ends_with_the_store_while_etcd_is_away(server: EtcdServer) -> None:
    async with etcd_store(server.endpoint) as store, aclosing(store.watch("k")) as events:
        await take(events)
        server.kill9()
        waiting = asyncio.ensure_future(anext(events, None))
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(PATIENCE_SEC):
            assert await waiting is None


async def test_the_first_step_of_a_watch_fails_while_etcd_is_away(server: EtcdServer) -> None:
    async with etcd_store(server.endpoint, timeouts=QUICK) as store:
        server.kill9()
        with pytest.raises(StoreUnavailableError, match="no etcd endpoint can be used"):
            await anext(store.watch("k"))
        assert store.watcher_count == 0


async def test_a_key_that_is_none_of_ours_fails_the_watches_instead_of_silencing_them(
    server: EtcdServer,
) -> None:
    async with (
        etcd_store(server.endpoint, prefix="/w") as store,
        aclosing(store.watch("")) as events,
        aclosing(store.watch_key("k")) as others,
    ):
        for each in (events, others):
            await take(each)
        with grpc.insecure_channel(server.endpoint.removeprefix("http://")) as channel:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=b"/w/\xff", value=b""), timeout=PATIENCE_SEC)
        for each in (events, others):
            with pytest.raises(UnicodeDecodeError):
                await take(each)
