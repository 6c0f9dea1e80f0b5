"""A cancelled task ends: gRPC must neither swallow its cancellation nor make one up."""

import asyncio
from pathlib import Path

import grpc
import pytest

from kafscale.metadata.etcd.cancellation import CallCancelledError, cancellation_kept
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.metadata.etcd.connection import EtcdConnection
from tests.support.etcd_server import etcd_server
from tests.support.ports import free_port


async def test_a_cancellation_that_meets_the_streams_end() -> None:
    """`EtcdStore.close` hung: the watches' only cancellation was lost in a stream that failed just then."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    connection = EtcdConnection(endpoint, EtcdConfig(endpoints=(endpoint,), prefix=""))
    instead: list[grpc.aio.AioRpcError] = []

    async def follow() -> None:
        call = connection.watches.Watch(metadata=connection.metadata())
        call.add_done_callback(lambda _: following.cancel())
        with cancellation_kept(endpoint):
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                instead.append(error)
                raise

    following = asyncio.create_task(follow())
    await asyncio.wait({following})
    await connection.close(None)
    assert instead, "gRPC does not lose this cancellation any more: is the guard still needed?"
    assert following.cancelled()


async def test_a_closed_channel_cancels_no_task(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        connection = EtcdConnection(server.endpoint, EtcdConfig(endpoints=(server.endpoint,), prefix=""))
        call = connection.watches.Watch(metadata=connection.metadata())

        async def follow() -> None:
            with cancellation_kept(server.endpoint):
                await call.read()

        following = asyncio.create_task(follow())
        await call.wait_for_connection()
        await connection.close(None)
        with pytest.raises(CallCancelledError, match=server.endpoint):
            await following


async def test_what_a_block_raises_without_a_cancellation() -> None:
    with pytest.raises(KeyError), cancellation_kept("etcd-0"):
        raise KeyError("as it is")
    with cancellation_kept("etcd-0"):
        pass


async def test_an_error_after_a_cancellation() -> None:
    async def fail() -> None:
        with cancellation_kept("etcd-0"):
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            raise KeyError("instead of it")

    failing = asyncio.create_task(fail())
    await asyncio.wait({failing})
    assert failing.cancelled()


async def test_a_call_made_while_a_cancelled_task_tidies_up() -> None:
    """Its earlier cancellation is not this block's."""
    tidied = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with cancellation_kept("etcd-0"):
                await asyncio.sleep(0)
            tidied.set()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    assert working.cancelled()
    assert tidied.is_set()
