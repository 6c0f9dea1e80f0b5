"""Produce at a broker that does not lead a partition names the one that does (KIP-951)."""

from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.metadata.memory_store import MemoryStore
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_fetch_elsewhere import TOPIC, Pair, create, pair
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
VERSION_BEFORE, FIRST_VERSION = 9, 10


async def produce(client: Client, *partitions: int, version: int = FIRST_VERSION) -> Any:
    request = wire.produce_request(TOPIC, {index: wire.batch([b"x"]) for index in partitions})
    return await client.call(request, ProduceResponse, version)


async def epoch_in_metadata(client: Client, index: int) -> int:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    reply = await client.call(request, MetadataResponse, 8)
    return int(reply.topics[0].partitions[index].leader_epoch)


async def assert_names_leader(both: Pair, reply: Any) -> None:
    parts = {part.index: part for part in reply.responses[0].partition_responses}
    assert parts[both.index].error_code == NOT_LEADER
    leader = parts[both.index].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, await epoch_in_metadata(both.consumer, both.index))
    (node,) = reply.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (1, "127.0.0.1", both.leader.port, "a")


@on_uvloop
async def test_a_refusal_names_the_leader_and_its_address() -> None:
    async with pair() as both:
        await assert_names_leader(both, await produce(both.consumer, both.index))


@on_uvloop
async def test_only_the_refused_partition_names_a_leader() -> None:
    async with pair() as both:
        reply = await produce(both.consumer, both.index, 1 - both.index)
        await assert_names_leader(both, reply)
        (own,) = [part for part in reply.responses[0].partition_responses if part.index != both.index]
        assert (own.error_code, own.current_leader) == (0, None)


@on_uvloop
async def test_an_accepted_batch_names_no_leader() -> None:
    async with pair() as both:
        reply = await produce(both.producer, both.index)
        (part,) = reply.responses[0].partition_responses
        assert (part.error_code, part.current_leader) == (0, None)
        assert not reply.node_endpoints


@on_uvloop
async def test_an_older_client_is_refused_in_its_format() -> None:
    async with pair() as both:
        reply = await produce(both.consumer, both.index, version=VERSION_BEFORE)
        (part,) = reply.responses[0].partition_responses
        assert part.error_code == NOT_LEADER


@on_uvloop
async def test_a_stopping_broker_names_the_next_leader() -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    async with (
        in_process_broker(metadata=metadata, objects=objects, broker_id=1) as stays,
        in_process_broker(
            metadata=metadata, objects=objects, broker_id=2, shutdown_linger_ms=10_000
        ) as stops,
        stops.connect() as client,
    ):
        await create(stays, stops)
        (index,) = [index for index in (0, 1) if stops.process.serving.logs.partition(TOPIC, index)]
        stops.stop_signal.set()
        await until(lambda: not stops.process.serving.logs.partition(TOPIC, index), "it resigned")
        reply = await produce(client, index)  # answered when the next leader is known
        (part,) = reply.responses[0].partition_responses
        assert (part.error_code, part.current_leader.leader_id) == (NOT_LEADER, 1)
        assert [(node.node_id, node.port) for node in reply.node_endpoints] == [(1, stays.port)]
