"""The start of a store while etcd is away, stopped or slow; and what it takes from the settings."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.errors import StoreError, StoreUnavailableError
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.settings.broker import load_settings
from tests.metadata.etcd_stores import QUICK, etcd_store, put, until_answered
from tests.support.etcd_server import EtcdServer
from tests.support.on_uvloop import on_uvloop


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """One that does not run yet."""
    unstarted = EtcdServer(tmp_path)
    yield unstarted
    unstarted.close()


async def test_etcd_that_is_away_at_the_start_is_not_taken_for_empty(server: EtcdServer) -> None:
    server.start()
    async with etcd_store(server.endpoint, prefix="/s") as store:
        await put(store, "topics/orders")
    server.kill9()
    async with etcd_store(server.endpoint, prefix="/s", timeouts=QUICK) as store:
        with pytest.raises(StoreUnavailableError):
            await store.get("topics/orders")
        with pytest.raises(StoreUnavailableError):
            await store.range("topics/")
        with pytest.raises(StoreUnavailableError):
            await store.grant_lease(10)
        server.start()
        snapshot = await until_answered(lambda: store.range("topics/"))
        assert [item.key for item in snapshot.items] == ["topics/orders"]


async def test_etcd_that_is_stopped_at_the_start_is_bounded(server: EtcdServer) -> None:
    server.start()
    server.pause()
    began = time.monotonic()
    async with etcd_store(server.endpoint, timeouts=QUICK) as store:
        with pytest.raises(StoreUnavailableError):
            await store.get("k")
        with pytest.raises(StoreError):
            await put(store, "k")
        assert time.monotonic() - began < 2 * QUICK.call_sec + 2 * QUICK.connect_sec + 5
        server.resume()
        await until_answered(lambda: store.get("k"))


@on_uvloop
async def test_on_the_brokers_event_loop(server: EtcdServer) -> None:
    server.start()
    async with etcd_store(server.endpoint, timeouts=QUICK) as store:
        revision = await put(store, "k")
        events = store.watch("k")
        await anext(events)
        server.kill9()
        with pytest.raises(StoreUnavailableError):
            await store.get("k")
        server.start()
        found = await until_answered(lambda: store.get("k"))
        assert found is not None
        assert found.mod_revision == revision
        await put(store, "k")
        await anext(events)
        await events.aclose()


def test_the_prefix_is_the_namespaces_unless_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    base = {
        "KAFSCALE_ETCD_ENDPOINTS": "one:2379,https://two:2379",
        "KAFSCALE_S3_BUCKET": "records",
        "KAFSCALE_S3_NAMESPACE": "prod",
        "KAFSCALE_ETCD_USERNAME": "kafscale",
        "KAFSCALE_ETCD_PASSWORD": "secret",
        "KAFSCALE_ETCD_CA": str(tmp_path / "ca.pem"),
    }
    config = EtcdConfig.from_settings(load_settings(base))
    assert config == EtcdConfig(
        endpoints=("http://one:2379", "https://two:2379"),
        prefix="/kafscale/prod",
        username="kafscale",
        password="secret",
        ca=tmp_path / "ca.pem",
    )
    assert "secret" not in repr(config)
    set_prefix = load_settings(base | {"KAFSCALE_ETCD_PREFIX": "/clusters/a"})
    assert EtcdConfig.from_settings(set_prefix).prefix == "/clusters/a"


def test_settings_without_etcd_make_no_config() -> None:
    with pytest.raises(ValueError, match="KAFSCALE_ETCD_ENDPOINTS"):
        EtcdConfig.from_settings(load_settings({}))
