"""A broker beside a topic whose record it cannot read: it starts, serves the others, and says so."""

import json
import uuid

from kafka.protocol.admin import CreateTopicsResponse

from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.ops.item_failures import BackgroundWork
from kafscale.ops.metric_export import render
from kafscale.protocol.error_codes import ErrorCode
from tests.log.test_one_bad_partition import failures
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import CREATE_TOPICS_VERSION, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.topics import create_topics_request

UNREADABLE = b'kafscale_records_unreadable{kind="topic"} 1.0'


@on_uvloop
async def test_broker_starts_beside_a_topic_record_it_cannot_read() -> None:
    """One such record ended every broker at its start."""
    metadata, objects = MemoryMetadata(), ControlledStore()
    async with in_process_broker(metadata=metadata, objects=objects) as broker:
        await broker.create_topic("good")
    await metadata.transact([], [Put(keys.topic("bad"), b'{"version":2}')])
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        assert UNREADABLE in render(broker.metrics)
        await until(lambda: broker.process.serving.logs.partition("good", 0), "the other topic is led")
        assert (await client.produce("good", 0, wire.batch([b"x"]))).error_code == 0
        request = create_topics_request("bad", 1, None)
        reply = await client.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION)
        assert reply.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert not broker.running.done()


@on_uvloop
async def test_a_topic_record_that_becomes_unreadable_stops_no_broker() -> None:
    metadata = MemoryMetadata()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await metadata.transact([], [Put(keys.topic(topic), b"?")])
        await until(lambda: UNREADABLE in render(broker.metrics), "it was told of the record")
        assert (await client.produce(topic, 0, wire.batch([b"x"]))).error_code == 0
        assert not broker.running.done()


@on_uvloop
async def test_a_topic_config_of_a_newer_release_stops_its_expiry() -> None:
    """The value ended the broker that heard of it; the default in its place could remove records."""
    metadata = MemoryMetadata()
    async with in_process_broker(metadata=metadata, retention_check_interval_ms=20) as broker:
        record = TopicRecord(
            name="new",
            topic_id=uuid.uuid4(),
            partition_count=1,
            configs={"cleanup.policy": "freeze", "segment.bytes": "1048576"},
        )
        await broker.create_topic("new", configs={"retention.ms": -1})
        stored = json.loads(encode_topic_record(record))
        view = broker.process.serving.view
        old = view.topic("new")
        assert old is not None
        stored["topic_id"] = str(old.topic_id)
        await metadata.transact([], [Put(keys.topic("new"), json.dumps(stored).encode())])
        await until(lambda: view.topic("new") != old, "the broker was told")
        assert failures(broker, BackgroundWork.CONFIGS) >= 1
        config = broker.partition("new").config
        assert (config.retention_ms, config.segment_bytes) == (-1, 1048576)
        async with broker.connect() as client:
            assert (await client.produce("new", 0, wire.batch([b"x"], timestamp=1))).error_code == 0
            assert wire.records_in((await client.fetch("new", {0: 0}))[0].records) == [(0, b"x")]
        assert not broker.running.done()
