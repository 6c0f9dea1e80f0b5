"""The partitions that a broker owns, while topics come, change and go."""

import asyncio
from collections.abc import Sequence

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Operation, TransactionResult
from kafscale.protocol.compression import Codec
from tests.support import wire
from tests.support.in_process_broker import Client, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_MS

TOPIC_RESOURCE, SET = 2, 0


class SlowClaims(MemoryStore):
    """A metadata store that takes its time to make somebody a leader."""

    def __init__(self) -> None:
        super().__init__()
        self.may_claim = asyncio.Event()
        self.waiting = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if any(operation.key.startswith(keys.LEADERS) for operation in operations):
            self.waiting += 1
            await self.may_claim.wait()
        return await super().transact(compares, operations)


async def begin_create(client: Client, name: str, partitions: int = 1) -> None:
    """Ask for a topic; the answer comes when it is led (`created`)."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS, validate_only=False)
    await client.send(request, 7)


async def created(client: Client) -> None:
    assert (await client.receive(CreateTopicsResponse, 7)).topics[0].error_code == 0


async def set_config(client: Client, topic: str, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=name, config_operation=SET, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])],
        validate_only=False,
    )
    reply = await client.call(request, IncrementalAlterConfigsResponse, 1)
    assert reply.responses[0].error_code == 0


async def grow(client: Client, topic: str, count: int) -> None:
    one = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[one], timeout_ms=PATIENCE_MS, validate_only=False)
    assert (await client.call(request, CreatePartitionsResponse, 3)).results[0].error_code == 0


@on_uvloop
async def test_a_topic_that_changes_during_its_claim_is_claimed_once() -> None:
    metadata = SlowClaims()
    async with (
        in_process_broker(metadata=metadata) as broker,
        broker.connect() as creator,
        broker.connect() as client,
    ):
        await begin_create(creator, "topic", 2)
        await until(lambda: metadata.waiting == 1, "the claim is in flight")
        await set_config(client, "topic", "retention.ms", "1000")
        await set_config(client, "topic", "compression.type", "zstd")
        metadata.may_claim.set()
        await created(creator)
        await broker.process.serving.partitions.handed_over()
        assert metadata.waiting == 2, "the first found that the topic had changed"
        for index in (0, 1):
            partition = broker.partition("topic", index)
            assert partition.record.leader_epoch == 0
            assert partition.rules.codec is Codec.ZSTD
            assert (await client.produce("topic", index, wire.batch([b"x"]))).error_code == 0


@on_uvloop
async def test_partitions_added_during_a_claim_are_claimed_too() -> None:
    metadata = SlowClaims()
    async with (
        in_process_broker(metadata=metadata) as broker,
        broker.connect() as creator,
        broker.connect() as client,
    ):
        await begin_create(creator, "topic", 1)
        await until(lambda: metadata.waiting == 1, "the claim is in flight")
        growing = asyncio.create_task(grow(client, "topic", 3))
        await until(lambda: metadata.waiting == 2, "so is that of the new ones")
        metadata.may_claim.set()
        await created(creator)
        await growing
        for index in range(3):
            assert broker.partition("topic", index).record.leader_epoch == 0
            assert (await client.produce("topic", index, wire.batch([b"x"]))).base_offset == 0


@on_uvloop
async def test_growing_a_topic_leaves_existing_partitions_alone() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic("topic")
        await client.produce("topic", 0, wire.batch([b"x"]))
        before = broker.partition("topic", 0)
        await grow(client, "topic", 2)
        await until(lambda: broker.process.serving.logs.partition("topic", 1), "the new one is led")
        assert broker.partition("topic", 0) is before
        assert (await client.produce("topic", 0, wire.batch([b"y"]))).base_offset == 1


@on_uvloop
async def test_a_changed_topic_config_applies_to_the_next_append() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic("topic")
        text = [b"again and again " * 100]
        await client.produce("topic", 0, wire.batch(text))
        await set_config(client, "topic", "compression.type", "gzip")
        await until(lambda: broker.partition("topic").rules.codec is Codec.GZIP, "the change is known")
        await client.produce("topic", 0, wire.batch(text))
        sizes = [reference.size_bytes for reference in broker.partition("topic").references or ()]
        assert sizes[1] < sizes[0] / 3
        await set_config(client, "topic", "compression.gzip.level", "9")
        await until(lambda: broker.partition("topic").rules.codec_level == 9, "the level is known")
