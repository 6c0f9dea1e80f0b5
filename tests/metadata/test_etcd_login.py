"""etcd with users: what a wrong one hears at the start, and tokens that end while the broker runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kafscale.errors import StartupError, StoreUnavailableError
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import KeyValue, Snapshot
from tests.metadata.etcd_stores import etcd_store, put
from tests.support.etcd_server import SHARED, EtcdServer, etcd_server
from tests.support.waiting import PATIENCE_SEC

PREFIX = "/kafscale/prod"
USER, PASSWORD = "kafscale", "the broker's password"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """One that lets `USER` do what it likes below `PREFIX`."""
    with etcd_server(tmp_path) as started:
        started.add_user(USER, PASSWORD, f"{PREFIX}/")
        yield started


@pytest.fixture
async def store(server: EtcdServer) -> AsyncIterator[EtcdStore]:
    async with etcd_store(server.endpoint, prefix=PREFIX, username=USER, password=PASSWORD) as opened:
        yield opened


async def test_password_over_plain_http_warns(server: EtcdServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafscale"):
        async with etcd_store(server.endpoint, prefix=PREFIX, username=USER, password=PASSWORD):
            pass
    warning = next(record for record in caplog.records if "plain text" in record.getMessage())
    assert "KAFSCALE_ETCD_PASSWORD" in warning.getMessage()
    assert PASSWORD not in caplog.text


async def test_calls_and_watches_go_on_when_the_token_has_ended(server: EtcdServer, store: EtcdStore) -> None:
    async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k")) as before:
        assert isinstance(await anext(before), Snapshot)
        lease = await store.grant_lease(60)
        server.set_password(USER, PASSWORD)
        revision = await put(store, "k", b"1")
        change = KeyValue(key="k", value=b"1", mod_revision=revision)
        server.set_password(USER, PASSWORD)
        assert await store.get("k") == change
        server.set_password(USER, PASSWORD)
        assert (await store.range("")).items == (change,)
        event = await anext(before)
        assert not isinstance(event, Snapshot)
        assert event.puts_and_deletes == (change,)
        assert await store.renew_lease(lease)
        server.set_password(USER, PASSWORD)
        await store.revoke_lease(lease)


async def test_a_new_watch_on_a_stream_whose_token_has_ended(server: EtcdServer, store: EtcdStore) -> None:
    async with (
        asyncio.timeout(PATIENCE_SEC),
        aclosing(store.watch_key("old")) as old,
        aclosing(store.watch_key("new")) as new,
    ):
        await anext(old)
        server.set_password(USER, PASSWORD)
        await anext(new)
        for key, events in (("new", new), ("old", old)):
            revision = await put(store, key)
            event = await anext(events)
            assert not isinstance(event, Snapshot)
            assert event.puts_and_deletes == (KeyValue(key=key, value=b"value", mod_revision=revision),)


async def test_a_restart_of_etcd_ends_every_token(server: EtcdServer, store: EtcdStore) -> None:
    async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k")) as events:
        await anext(events)
        server.kill9()
        server.start()
        await store.get("k")
        await put(store, "k", b"after")
        assert not isinstance(await anext(events), Snapshot)


@pytest.mark.parametrize(("username", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
async def test_a_wrong_user_or_password_stops_the_start(
    server: EtcdServer, username: str, password: str
) -> None:
    with pytest.raises(StartupError, match=rf"{username}.*KAFSCALE_ETCD_USERNAME and KAFSCALE_ETCD_PASSWORD"):
        async with etcd_store(server.endpoint, prefix=PREFIX, username=username, password=password):
            pass


async def test_no_user_where_etcd_wants_one_stops_the_start(server: EtcdServer) -> None:
    with pytest.raises(StartupError, match="set KAFSCALE_ETCD_USERNAME"):
        async with etcd_store(server.endpoint, prefix=PREFIX):
            pass


async def test_a_prefix_that_the_user_may_not_touch_stops_the_start(server: EtcdServer) -> None:
    with pytest.raises(StartupError, match=r"/kafscale/other/: grant .*KAFSCALE_ETCD_PREFIX"):
        async with etcd_store(server.endpoint, prefix="/kafscale/other", username=USER, password=PASSWORD):
            pass


async def test_a_password_that_is_changed_later_makes_etcd_unavailable(
    server: EtcdServer, store: EtcdStore
) -> None:
    await put(store, "k")
    server.set_password(USER, "another")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="KAFSCALE_ETCD_PASSWORD"):
            await store.get("k")
        with pytest.raises(StoreUnavailableError, match="KAFSCALE_ETCD_PASSWORD"):
            await put(store, "k")
    server.set_password(USER, PASSWORD)
    assert (await store.get("k")) is not None


async def test_a_user_where_etcd_has_none_is_no_error() -> None:
    async with etcd_store(SHARED.endpoint(), username=USER, password=PASSWORD) as store:
        await put(store, "k")
        assert (await store.get("k")) is not None
