"""The requests that the bucket store notes are those that reach a server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafscale.errors import ObjectExistsError, ObjectNotFoundError
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.store import BucketStore
from kafscale.objects.hedging import Hedge, hedged
from kafscale.objects.request_meter import RequestMeter
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Operation, Prices
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import load_settings
from kafscale.tasks.owner import TaskOwner
from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.s3_server import s3_server
from tests.support.waiting import NotInTimeError, wait_until_async

KEY = "default/orders/0/segment-00000000000000000000.kfs"
SLOW_KEY = "default/slow/0/segment-00000000000000000000.kfs"  # may be there again after it was deleted
# By the method of HTTP; a listing is a GET of the bucket.
METHODS = {
    "PUT": {Operation.PUT_OBJECT, Operation.UPLOAD_PART},
    "POST": {
        Operation.CREATE_MULTIPART_UPLOAD,
        Operation.COMPLETE_MULTIPART_UPLOAD,
        Operation.DELETE_OBJECTS,
    },
    "GET": {Operation.GET_OBJECT, Operation.LIST_OBJECTS},
    "HEAD": {Operation.HEAD_OBJECT},
    "DELETE": {Operation.ABORT_MULTIPART_UPLOAD},
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreProxy]:
    folder: Path = tmp_path_factory.mktemp("s3")
    with s3_server(folder) as server, ObjectStoreProxy(server.endpoint) as proxy:
        proxy.settings = server.settings | {"KAFSCALE_S3_ENDPOINT": proxy.url}  # type: ignore[attr-defined]
        yield proxy


@asynccontextmanager
async def counting(proxy: ObjectStoreProxy) -> AsyncIterator[tuple[BucketStore, Metrics]]:
    """A store whose requests are compared with the proxy's at the end of the block."""
    metrics, before = Metrics(), proxy.counts()
    settings = load_settings(proxy.settings)  # type: ignore[attr-defined]
    meter = RequestMeter(metrics, Prices(), "default")
    store = open_bucket(settings, multipart_above_bytes=1_000_000, part_bytes=5 * 2**20, meter=meter)
    try:
        yield store, metrics
    finally:
        await store.close()

    def differences() -> dict[str, tuple[int, int]]:
        reached = proxy.counts() - before
        found = {}
        for method, operations in METHODS.items():
            counted = sum(metrics.store_requests[one].count for one in operations)
            there = sum(number for kind, number in reached.items() if kind.method == method)
            if counted != there:
                found[method] = counted, there
        return found

    # The proxy counts a request after its client has the answer.
    async def agree() -> bool:
        return not differences()

    try:
        await wait_until_async(agree, "the proxy counts as many", 10)
    except NotInTimeError as late:
        raise AssertionError(f"counted and reached, by method: {differences()}") from late


async def chunks_of(size_bytes: int) -> AsyncIterator[Buffer]:
    for start in range(0, size_bytes, 2**20):
        yield bytes(min(2**20, size_bytes - start))


async def test_each_method_is_counted_by_its_operation(proxy: ObjectStoreProxy) -> None:
    async with counting(proxy) as (store, metrics):
        await store.put_if_absent(KEY, [b"abc"])
        with pytest.raises(ObjectExistsError):
            await store.put_if_absent(KEY, [b"abc"])
        await store.put("_kafscale/default/cluster", [b"x"])
        await store.get(KEY)
        await store.get_range(KEY, 1, 1)
        await store.read_into(KEY, 0, 3, [memoryview(bytearray(3))])
        await store.size_bytes(KEY)
        with pytest.raises(ObjectNotFoundError):
            await store.get("default/orders/0/nothing")
        assert [info.key async for info in store.list("default/orders/")] == [KEY]
        await store.delete([KEY, "_kafscale/default/cluster"])
        counts = {name: found.count for name, found in metrics.store_requests.items() if found.count}
    assert counts == {"PutObject": 3, "GetObject": 5, "ListObjectsV2": 1, "DeleteObjects": 1}
    assert metrics.topic_costs["orders"].put == pytest.approx(3 * 5e-6), "the listing, too"
    assert metrics.topic_costs["(none)"].put == pytest.approx(5e-6), "the marker"


async def test_attempts_that_are_repeated_are_counted(proxy: ObjectStoreProxy) -> None:
    async with counting(proxy) as (store, metrics):
        with proxy.fault(Fault(kind=FaultKind.SLOW_DOWN, times=2)):
            await store.put(KEY, [b"abc"])
        await store.delete([KEY])
    assert metrics.store_requests["PutObject"].count == 3
    assert metrics.topic_costs["orders"].put == pytest.approx(3 * 5e-6)


async def test_a_second_request_beside_a_slow_one_is_counted(proxy: ObjectStoreProxy) -> None:
    hedge = Hedge(0.5)
    async with counting(proxy) as (store, metrics):
        with proxy.fault(Fault(kind=FaultKind.DELAY, seconds=(0.5, 0.5), times=1)):
            await hedged(lambda: store.put(SLOW_KEY, [b"abc"]), hedge, requests := TaskOwner())
            proxy.release()
            await requests.close()
    assert metrics.store_requests["PutObject"].count == 2


async def test_each_part_of_an_upload_is_counted(proxy: ObjectStoreProxy) -> None:
    size_bytes = 12 * 2**20
    async with counting(proxy) as (store, metrics):
        await store.put_if_absent_streamed(KEY, chunks_of(size_bytes), size_bytes)
        with pytest.raises(ObjectExistsError):
            await store.put_if_absent_streamed(KEY, chunks_of(size_bytes), size_bytes)
        await store.delete([KEY])
        counts = {name: found.count for name, found in metrics.store_requests.items()}
    assert counts["CreateMultipartUpload"] == counts["CompleteMultipartUpload"] == 1
    assert counts["UploadPart"] == 3
    assert metrics.topic_costs["orders"].put == pytest.approx(5 * 5e-6)


async def test_each_page_of_a_listing_is_counted(proxy: ObjectStoreProxy) -> None:
    keys = [f"default/many/{number:05d}" for number in range(1001)]
    async with counting(proxy) as (store, metrics):
        for key in keys:
            await store.put(key, [b""])
        assert len([info async for info in store.list("default/many/")]) == 1001
        await store.delete(keys)
    assert metrics.store_requests["ListObjectsV2"].count == 2
    assert metrics.store_requests["DeleteObjects"].count == 2
