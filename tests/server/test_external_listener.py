"""Clients are told the addresses of the listener that they came to, and of no other (KIP-103)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from kafscale.errors import StartupError
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.model import Endpoint, ListenerName
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.kinds import Address
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import (
    Client,
    InProcessBroker,
    in_process_broker,
    until,
)
from tests.support.on_uvloop import on_uvloop

TOPIC = "topic"
HOST = "outside.example.com"
ANYWHERE = Address("127.0.0.1", 0)


@asynccontextmanager
async def connect_outside(broker: InProcessBroker) -> AsyncIterator[Client]:
    """A client of the external address."""
    endpoint = broker.process.listeners[ListenerName.EXTERNAL]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connected:
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", endpoint.port))
        yield Client(connected)


async def metadata(client: Client, version: int = 12) -> Any:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return await client.call(request, MetadataResponse, version)


def addresses(brokers: Any, node: str = "node_id") -> set[tuple[int, str, int]]:
    return {(getattr(one, node), one.host, one.port) for one in brokers}


@on_uvloop
async def test_each_listener_returns_its_own_addresses() -> None:
    async with in_process_broker(external_addr=ANYWHERE, external_host=HOST) as broker:
        await broker.create_topic(TOPIC)
        at = broker.process.listeners[ListenerName.EXTERNAL]
        external = Endpoint(at.host, at.port)
        async with broker.connect() as within, connect_outside(broker) as outside:
            for client, endpoint in ((within, Endpoint("127.0.0.1", broker.port)), (outside, external)):
                expected = {(0, *endpoint)}
                told = await metadata(client)
                assert addresses(told.brokers) == expected
                assert [one.partitions[0].leader_id for one in told.topics] == [0]
                described = await client.call(DescribeClusterRequest(), DescribeClusterResponse, 1)
                assert addresses(described.brokers, "broker_id") == expected
                old = FindCoordinatorRequest(key="g", key_type=0)
                assert addresses([await client.call(old, FindCoordinatorResponse, 3)]) == expected
                new = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
                assert (
                    addresses((await client.call(new, FindCoordinatorResponse, 4)).coordinators) == expected
                )
                assert (await client.produce(TOPIC, 0, wire.batch([b"x"]))).error_code == 0
        assert (external.host, external.port != broker.port) == (HOST, True)


@on_uvloop
async def test_brokers_without_a_listener_are_hidden_from_its_clients() -> None:
    """They were started before it was set, or are configured otherwise."""
    metadata_store, objects = MemoryMetadata(), ControlledStore()
    async with (
        in_process_broker(metadata=metadata_store, objects=objects, broker_id=0) as first,
        in_process_broker(
            metadata=metadata_store, objects=objects, broker_id=1, external_addr=ANYWHERE, external_host=HOST
        ) as second,
    ):
        async with first.connect() as client:
            request = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC, topic_id=None)],
                allow_auto_topic_creation=True,
            )
            await client.call(request, MetadataResponse, 12)
        await until(
            lambda: (
                first.process.serving.logs.partition(TOPIC, 0)
                or second.process.serving.logs.partition(TOPIC, 0)
            ),
            "led",
        )
        leader = 0 if first.process.serving.logs.partition(TOPIC, 0) else 1
        async with connect_outside(second) as outside:
            for version, code in ((12, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
                told = await metadata(outside, version)
                assert {one.node_id for one in told.brokers} == {1}
                (partition,) = told.topics[0].partitions
                expected = (0, 1) if leader == 1 else (code, -1)
                assert (partition.error_code, partition.leader_id) == expected


@on_uvloop
async def test_an_external_address_that_is_taken_ends_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(StartupError, match=f"{address}.*KAFSCALE_EXTERNAL_ADDR"):
            async with in_process_broker(external_addr=address):
                pass
