"""The stores that are opened to look at: of a broker that runs, of a bucket and its replica, and none is made."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from kafscale.broker import stores
from kafscale.errors import ObjectNotFoundError, StartupError
from kafscale.formats.journal_keys import entry_key, gathered_key
from kafscale.metadata.store import Put
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Operation
from kafscale.settings.broker import Settings, load_settings
from tests.support.ports import free_port
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server


async def read(settings: Settings, key: str) -> bytes:
    async with contextlib.AsyncExitStack() as stack:
        _, objects = await stores.open_for_reading(settings, stack)
        return await objects.get(key)


async def test_embedded_stores_are_read_while_they_are_used(tmp_path: Path) -> None:
    settings = load_settings({"KAFSCALE_DATA_DIR": str(tmp_path / "data")})
    async with contextlib.AsyncExitStack() as stack:
        owned, written = await stores.open_stores(settings, stack)
        await written.put("n/t/0/object", [b"0123"])
        metadata, objects = await stores.open_for_reading(settings, stack)
        for count in range(3):
            await owned.transact([], [Put("k", b"%d" % count)])
            assert await metadata.get("k") == await owned.get("k")
            assert await metadata.range("") == await owned.range("")
        assert await objects.get_range("n/t/0/object", 1, 2) == b"12"
        with pytest.raises(ObjectNotFoundError):
            await objects.get("n/t/0/none")


async def test_nothing_is_made_to_be_read(tmp_path: Path) -> None:
    settings = load_settings({"KAFSCALE_DATA_DIR": str(tmp_path / "data")})
    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(StartupError, match="there is no metadata file"):
            await stores.open_for_reading(settings, stack)
        assert await stores.open_exports_for_reading(settings, stack) == []
    assert not list(await asyncio.to_thread(tmp_path.iterdir))


async def test_objects_come_from_the_replica_first(tmp_path: Path) -> None:
    missing = s3_server_missing()
    if missing is not None:
        pytest.skip(missing)
    data = {"KAFSCALE_DATA_DIR": str(tmp_path / "data")}
    async with contextlib.AsyncExitStack() as stack:
        await stores.open_stores(load_settings(data), stack)
    with s3_server(tmp_path / "primary") as primary, s3_server(tmp_path / "replica") as replica:
        for server, keys in ((primary, ("n/both", "n/new")), (replica, ("n/both",))):
            (server.bucket_folder / "n").mkdir()
            for key in keys:
                (server.bucket_folder / key).write_bytes(server.name.encode())
        settings = data | primary.settings | {"KAFSCALE_S3_READ_BUCKET": replica.bucket}
        reading = load_settings(settings | {"KAFSCALE_S3_READ_ENDPOINT": replica.endpoint})
        assert await read(reading, "n/both") == replica.name.encode()
        assert await read(reading, "n/new") == primary.name.encode()
        away = load_settings(settings | {"KAFSCALE_S3_READ_ENDPOINT": f"http://127.0.0.1:{free_port()}"})
        assert await read(away, "n/both") == primary.name.encode()
        assert await read(load_settings(data | primary.settings), "n/both") == primary.name.encode()


@pytest.mark.parametrize(
    ("bucket", "key", "dollars"),
    [
        (None, gathered_key("default", "j", 0), 1.0),
        (None, entry_key("default", "j", 0), 1.0),
        ("journals", gathered_key("default", "x-j", 0), 1.0),
        ("journals", entry_key("default", "x-j", 0), 2.0),
        # Of a journal that was begun before there was a journal bucket.
        ("journals", entry_key("default", "j", 0), 1.0),
    ],
)
def test_costs_are_shared_in_the_bucket_that_is_asked(
    tmp_path: Path, bucket: str | None, key: str, dollars: float
) -> None:
    data = {"KAFSCALE_DATA_DIR": str(tmp_path), "KAFSCALE_S3_BUCKET": "records"}
    data |= {"KAFSCALE_PRICE_PER_1000_PUTS": "1000"}
    if bucket is not None:
        data |= {"KAFSCALE_JOURNAL_BUCKET": bucket, "KAFSCALE_JOURNAL_PRICE_PER_1000_PUTS": "2000"}
    metrics = Metrics()
    meters = stores.request_meters(load_settings(data), metrics)
    assert meters is not None
    meter = meters.journals if dollars == 2 else meters.records
    with meters.shared(key, [("orders", 10), ("clicks", 10)]):
        meter.sent(Operation.PUT_OBJECT, key)
    assert {name: costs.put for name, costs in metrics.topic_costs.items()} == {
        "orders": dollars / 2,
        "clicks": dollars / 2,
    }


@pytest.mark.parametrize(
    ("settings", "percent"),
    [
        ({}, 10),
        ({"KAFSCALE_FLUSH_INTERVAL_MS": "1"}, 10),
        ({"KAFSCALE_FLUSH_INTERVAL_MS": "0"}, 100),
        ({"KAFSCALE_FLUSH_INTERVAL_MS": "0", "KAFSCALE_S3_HEDGED_PUTS_PERCENT": "10"}, 10),
        ({"KAFSCALE_FLUSH_INTERVAL_MS": "0", "KAFSCALE_S3_HEDGED_PUTS_PERCENT": "0"}, 0),
        ({"KAFSCALE_S3_HEDGED_PUTS_PERCENT": "50"}, 50),
    ],
)
def test_entries_written_at_once_are_hedged_more_often(settings: dict[str, str], percent: int) -> None:
    assert stores.hedged_percent(load_settings(settings)) == percent
    assert stores.open_hedge(load_settings(settings)) is None  # in a folder none is
    on_a_bucket = load_settings(
        {"KAFSCALE_S3_BUCKET": "bucket", "KAFSCALE_ETCD_ENDPOINTS": "e:2379", **settings}
    )
    hedge = stores.open_hedge(on_a_bucket)
    assert (hedge is None) == (percent == 0)
    if hedge is not None:
        assert (hedge.delay_sec == 0) == (percent == 100)
