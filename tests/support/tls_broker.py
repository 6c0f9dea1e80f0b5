"""A broker with TLS in the test's own process, and raw clients of it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from kafscale.protocol.listeners import ListenerName
from kafscale.server.connection import Connection
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import NamedAddress
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker
from tests.support.tls_files import TlsFolder

ANYWHERE = Address("127.0.0.1", 0)
PLAIN, TLS = ListenerName("PLAINTEXT"), ListenerName("SSL")
BOTH: Final = (NamedAddress(PLAIN, ANYWHERE), NamedAddress(TLS, ANYWHERE))


class TlsClient(Client):
    """A raw client over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer.get_extra_info("socket"))
        self._reader, self._writer = reader, writer

    @property
    def certificate(self) -> bytes:
        """The broker's."""
        found = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive_exactly(self, count: int) -> bytes:
        return await self._reader.readexactly(count)


def port_of(broker: InProcessBroker, name: ListenerName = TLS) -> int:
    return broker.process.listeners[name].port


@contextlib.asynccontextmanager
async def tls_client(broker: InProcessBroker, context: ssl.SSLContext) -> AsyncIterator[TlsClient]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker), ssl=context, server_hostname="localhost"
    )
    try:
        yield TlsClient(reader, writer)
    finally:
        writer.transport.abort()


def tls_broker(files: TlsFolder, **settings: Any) -> contextlib.AbstractAsyncContextManager[InProcessBroker]:
    return in_process_broker(**{"listeners": BOTH, **files.settings, **settings})


def connections(broker: InProcessBroker) -> list[Connection]:
    return [one for one in broker.process.basics.listener._connections if isinstance(one, Connection)]


async def endpoints(client: Client) -> list[set[tuple[int, str, int]]]:
    """By Metadata and DescribeCluster."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    metadata = await client.call(request, MetadataResponse, 12)
    cluster = await client.call(DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse, 1)
    return [
        {(one.node_id, one.host, one.port) for one in metadata.brokers},
        {(one.broker_id, one.host, one.port) for one in cluster.brokers},
    ]


async def coordinator(client: Client) -> tuple[int, str, int]:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    (found,) = (await client.call(request, FindCoordinatorResponse, 4)).coordinators
    return found.node_id, found.host, found.port
