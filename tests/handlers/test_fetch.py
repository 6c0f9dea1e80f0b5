"""Fetch: what it waits for, how much it returns, and what it refuses."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.admin import DeleteTopicsRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from kafscale.formats.partition_record import decode_partition_record, encode_partition_record
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import lead_elsewhere
from tests.support.waiting import PATIENCE_MS

LONG_MS = 60_000


def batches_in(records: Any) -> list[tuple[int, int]]:
    """First offset and length of every batch."""
    data, found = bytes(records or b""), []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        assert size <= len(data), "a batch is cut"
        found.append((int.from_bytes(data[:8], "big"), size))
        data = data[size:]
    return found


async def produce_all(client: Client, topic: str, batches: Sequence[bytes], partition: int = 0) -> None:
    """One segment for each batch."""
    for batch in batches:
        assert (await client.produce(topic, partition, batch)).error_code == 0


async def waits(broker: InProcessBroker, topic: str, partition: int = 0) -> None:
    await until(lambda: broker.partition(topic, partition)._listeners, "the fetch waits")


# --- waiting


@on_uvloop
async def test_min_bytes_counts_all_partitions_together() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as producer:
        topic = await broker.create_topic(partitions=3)
        await client.send_fetch(topic, dict.fromkeys(range(3), 0), max_wait_ms=LONG_MS, min_bytes=2000)
        await waits(broker, topic)
        for partition in range(3):
            assert broker.metrics.apis["FETCH"].duration.counts == [0] * 16
            await producer.produce(topic, partition, wire.batch([bytes(700)]))
        parts = await client.receive_fetch()
        assert [len(wire.records_in(parts[partition].records)) for partition in range(3)] == [1, 1, 1]


@on_uvloop
async def test_what_is_there_already_counts_for_min_bytes() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as producer:
        topic = await broker.create_topic(partitions=2)
        await producer.produce(topic, 0, wire.batch([bytes(700)]))
        await client.send_fetch(topic, {0: 0, 1: 0}, max_wait_ms=LONG_MS, min_bytes=1400)
        await waits(broker, topic, 1)
        await producer.produce(topic, 1, wire.batch([bytes(700)]))
        parts = await client.receive_fetch()
        assert [len(wire.records_in(parts[partition].records)) for partition in (0, 1)] == [1, 1]


@on_uvloop
async def test_twelve_idle_partitions_wait_once_and_together() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=12)
        loop = asyncio.get_running_loop()
        began = loop.time()
        parts = await client.fetch(topic, dict.fromkeys(range(12), 0), max_wait_ms=200)
        assert 0.19 <= loop.time() - began < 1.5
        assert [(part.error_code, bytes(part.records or b"")) for part in parts.values()] == [(0, b"")] * 12
        assert not any(broker.partition(topic, index)._listeners for index in range(12))


@pytest.mark.parametrize("limits", [{"max_wait_ms": 0}, {"max_wait_ms": -1}, {"min_bytes": 0}])
@on_uvloop
async def test_a_fetch_that_will_not_wait_is_answered_at_once(limits: dict[str, int]) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        part = (await client.fetch(topic, {0: 0}, **{"max_wait_ms": LONG_MS, **limits}))[0]
        assert (part.error_code, part.high_watermark) == (0, 0)


@on_uvloop
async def test_one_refused_partition_ends_the_wait_of_all() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        parts = await client.fetch(topic, {0: 0, 7: 0}, max_wait_ms=LONG_MS)
        assert parts[0].error_code == 0
        assert parts[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_a_request_without_partitions_is_answered_at_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        assert await client.fetch("any", {}, max_wait_ms=LONG_MS) == {}


@on_uvloop
async def test_a_client_that_leaves_ends_the_wait_of_its_fetch() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            await client.send_fetch(topic, {0: 0}, max_wait_ms=LONG_MS)
            await waits(broker, topic)
        await until(lambda: not broker.partition(topic)._listeners, "the fetch is forgotten")


@on_uvloop
async def test_a_topic_that_is_deleted_ends_the_wait_by_name_and_by_id() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as by_name, broker.connect() as by_id, broker.connect() as admin:
            topic_id = await id_of(admin, topic)
            await by_name.send_fetch(topic, {0: 0}, max_wait_ms=LONG_MS)
            request = wire.fetch_request(topic, {0: 0}, max_wait_ms=LONG_MS)
            request.topics[0].topic_id = topic_id
            await by_id.send(request, 13)
            await until(lambda: len(broker.partition(topic)._listeners or ()) == 2, "both wait")
            await admin.send(DeleteTopicsRequest(topic_names=[topic], timeout_ms=PATIENCE_MS), 5)
            assert (await by_name.receive_fetch())[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            reply = await by_id.receive(FetchResponse, 13)
            assert reply.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def id_of(client: Client, topic: str) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return (await client.call(request, MetadataResponse, 12)).topics[0].topic_id


# --- how much


@on_uvloop
async def test_several_segments_are_joined_in_one_reply() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"%d" % number] * 3) for number in range(10)])
        assert len(await broker.objects.keys("*.entry")) == 10
        part = (await client.fetch(topic, {0: 7}))[0]
        assert [offset for offset, _ in wire.records_in(part.records)] == list(range(6, 30))
        assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (30, 30, 0)


@on_uvloop
async def test_the_limit_of_a_partition_is_kept_with_whole_batches() -> None:
    async with in_process_broker(flushes_in_flight=1) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        batch = wire.batch([bytes(1000)])
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: batch})
            await hold.reached()
            for _ in range(299):  # fills one segment with several index entries
                await client.send_produce(topic, {0: batch})
            log = broker.partition(topic).log
            await until(lambda: log and log.waiting and log.waiting.record_count == 299, "all has come")
        for _ in range(300):
            await client.receive_produce()
        for offset, count in ((0, 5), (1, 1), (1, 150), (120, 101), (299, 1), (3, 250)):
            limit = count * len(batch) + 10
            part = (await client.fetch(topic, {0: offset}, partition_max_bytes=limit))[0]
            expected = [(offset + number, len(batch)) for number in range(count)]
            assert batches_in(part.records) == expected
            exact = (await client.fetch(topic, {0: offset}, partition_max_bytes=count * len(batch)))[0]
            assert batches_in(exact.records) == expected


@on_uvloop
async def test_the_limit_of_a_reply_is_kept_over_its_partitions() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=4)
        batch = wire.batch([bytes(1000)])
        for partition in range(4):
            await produce_all(client, topic, [batch] * 3, partition)
        parts = await client.fetch(topic, dict.fromkeys(range(4), 0), max_bytes=5 * len(batch) + 10)
        assert [len(batches_in(parts[partition].records)) for partition in range(4)] == [3, 2, 0, 0]


@on_uvloop
async def test_the_brokers_own_limit_goes_before_the_clients() -> None:
    async with in_process_broker(fetch_max_bytes=5000) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([bytes(1000)])] * 10)
        part = (await client.fetch(topic, {0: 0}, max_bytes=1 << 30, partition_max_bytes=1 << 30))[0]
        assert len(batches_in(part.records)) == 4


@pytest.mark.parametrize("limit", [0, 1, -1, -(2**31), 100])
@on_uvloop
async def test_only_the_first_batch_of_a_reply_may_exceed_the_limits(limit: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=3)
        for partition in (1, 2):
            await produce_all(client, topic, [wire.batch([bytes(1000)])] * 2, partition)
        wanted = dict.fromkeys(range(3), 0)
        parts = await client.fetch(topic, wanted, max_bytes=limit, partition_max_bytes=1 << 20)
        assert [len(batches_in(parts[partition].records)) for partition in range(3)] == [0, 1, 0]
        parts = await client.fetch(topic, wanted, partition_max_bytes=limit)
        assert [len(batches_in(parts[partition].records)) for partition in range(3)] == [0, 1, 0]


@on_uvloop
async def test_an_offset_inside_a_batch_gets_that_batch() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for _ in range(2):
            await client.produce_together(topic, 0, [wire.batch([b"x"] * 10)] * 3)
        for offset in range(60):
            part = (await client.fetch(topic, {0: offset}, partition_max_bytes=1))[0]
            assert [base for base, _ in batches_in(part.records)] == [offset // 10 * 10]


@on_uvloop
async def test_offsets_that_a_leader_skipped_are_a_gap() -> None:
    """As leaders did before there were journals, where an older one's upload lay."""
    metadata, objects = MemoryMetadata(), ControlledStore()
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"a", b"b"])])
        await broker.seal(topic)
    key = keys.partition(topic, 0)
    stored = await metadata.get(key)
    assert stored is not None
    record = replace(decode_partition_record(key, stored.value), log_end_offset=3, journal=None)
    await metadata.transact([], [Put(key, encode_partition_record(record))])
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        part = await client.produce_as_clients_do(topic, 0, wire.batch([b"c"]))
        assert (part.error_code, part.base_offset) == (0, 3)
        for offset, expected in ((0, [(0, b"a"), (1, b"b"), (3, b"c")]), (2, [(3, b"c")]), (3, [(3, b"c")])):
            part = (await client.fetch(topic, {0: offset}))[0]
            assert wire.records_in(part.records) == expected
            assert part.high_watermark == 4


@on_uvloop
async def test_partition_named_again_is_answered_once_by_the_last() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        await produce_all(client, topic, [wire.batch([b"a"]), wire.batch([b"b"])])
        request = wire.fetch_request(topic, {0: 0, 1: 0})
        request.topics *= 2500
        request.topics[-1] = wire.fetch_request(topic, {0: 1}).topics[0]
        (answer,) = (await client.call(request, FetchResponse, 11)).responses
        assert [part.partition_index for part in answer.partitions] == [0, 1]
        assert wire.records_in(answer.partitions[0].records) == [(1, b"b")]


@on_uvloop
async def test_idle_fetch_that_names_a_partition_again_gets_records() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as writer:
        topic = await broker.create_topic(partitions=2)
        request = wire.fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=300)
        request.topics[0].partitions *= 2
        for _ in range(2):
            (answer,) = (await client.call(request, FetchResponse, 11)).responses
            assert [part.partition_index for part in answer.partitions] == [0, 1]
        await client.send(request, 11)
        await produce_all(writer, topic, [wire.batch([b"a"])])
        (answer,) = (await client.receive(FetchResponse, 11)).responses
        assert [part.partition_index for part in answer.partitions] == [0, 1]
        assert wire.records_in(answer.partitions[0].records) in ([(0, b"a")], [])
        (answer,) = (await client.call(request, FetchResponse, 11)).responses
        assert wire.records_in(answer.partitions[0].records) == [(0, b"a")]


@on_uvloop
async def test_fetch_of_thousands_of_partitions_reads_those_there_are() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"a"])])
        request = wire.fetch_request(topic, dict.fromkeys(range(5_000), 0))
        (answer,) = (await client.call(request, FetchResponse, 11)).responses
        assert [part.partition_index for part in answer.partitions] == list(range(5_000))
        assert wire.records_in(answer.partitions[0].records) == [(0, b"a")]
        assert {part.error_code for part in answer.partitions[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# --- refusals


@on_uvloop
async def test_offsets_outside_the_log_are_out_of_range_at_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"x"] * 3)])
        for offset in (-1, -(2**63), 4, 2**63 - 1):
            part = (await client.fetch(topic, {0: offset}, max_wait_ms=LONG_MS))[0]
            assert (part.error_code, part.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        part = (await client.fetch(topic, {0: 3}, max_wait_ms=0))[0]
        assert (part.error_code, part.high_watermark) == (0, 3)


@on_uvloop
async def test_a_log_start_that_passes_a_waiting_fetch_answers_it() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as producer:
        topic = await broker.create_topic()
        await produce_all(producer, topic, [wire.batch([b"x"])] * 3)
        await client.send_fetch(topic, {0: 1}, max_wait_ms=LONG_MS, min_bytes=5000)
        await waits(broker, topic)
        deletion = broker.process.serving.segment_life.record_deletion
        assert await deletion.delete_before(broker.partition(topic), 2) == 2
        await producer.produce(topic, 0, wire.batch([bytes(6000)]))
        assert (await client.receive_fetch())[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (1, 0), (0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
@on_uvloop
async def test_the_leader_epoch_that_the_client_believes_in_is_checked(epoch: int, code: int) -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
    async with (
        in_process_broker(metadata=broker.metadata, objects=broker.objects) as again,
        again.connect() as client,
    ):
        leader_epoch = again.partition(topic).record.leader_epoch
        request = wire.fetch_request(topic, {0: 0}, max_wait_ms=0)
        request.topics[0].partitions[0].current_leader_epoch = (
            epoch if epoch < 0 else leader_epoch + epoch - 1
        )
        reply = await client.call(request, FetchResponse, 11)
        assert reply.responses[0].partitions[0].error_code == code


@on_uvloop
async def test_a_followed_partition_is_read_and_not_written() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await lead_elsewhere(broker.metadata, topic, 1)
        key = keys.topic(topic)
        held = await broker.metadata.get(key)
        assert held is not None
        record = decode_topic_record(key, held.value)
        grown = type(record)(
            name=record.name, topic_id=record.topic_id, partition_count=2, configs=record.configs
        )
        await broker.metadata.transact([], [Put(key, encode_topic_record(grown))])
        view = broker.process.serving.view
        await until(lambda: (found := view.topic(topic)) and found.partition_count == 2, "the view shows it")
        parts = await client.fetch(topic, {1: 0}, max_wait_ms=0)
        assert (parts[1].error_code, parts[1].high_watermark) == (0, 0)
        assert (await client.produce(topic, 1, wire.batch([b"x"]))).error_code == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "refused"),
    [
        (0, -1, False),
        (0, 0, False),
        (5, 0, False),
        (5, -1, False),
        (5, 1, True),
        (0, 1, True),
        (5, 2**31 - 1, True),
    ],
)
@on_uvloop
async def test_sessions_are_declined_as_kip_227_allows(
    session_id: int, session_epoch: int, refused: bool
) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"x"])])
        request = wire.fetch_request(topic, {0: 0})
        request.session_id, request.session_epoch = session_id, session_epoch
        reply = await client.call(request, FetchResponse, 11)
        assert reply.session_id == 0
        if refused:
            assert (reply.error_code, reply.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        else:
            assert reply.error_code == 0
            assert wire.records_in(reply.responses[0].partitions[0].records) == [(0, b"x")]


@pytest.mark.parametrize("version", range(4, 14))
@on_uvloop
async def test_every_version_carries_the_same_records(version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"a"]), wire.batch([b"b"])])
        request: FetchRequest = wire.fetch_request(topic, {0: 0})
        request.isolation_level = 1
        request.topics[0].topic_id = await id_of(client, topic)
        reply = await client.call(request, FetchResponse, version)
        (part,) = reply.responses[0].partitions
        assert wire.records_in(part.records) == [(0, b"a"), (1, b"b")]
        assert not part.aborted_transactions


@on_uvloop
async def test_what_is_sent_is_counted() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_all(client, topic, [wire.batch([b"a", b"b"]), wire.batch([b"c"])])
        part = (await client.fetch(topic, {0: 1}))[0]
        counters, cache = broker.metrics.topic(topic), broker.metrics.cache("segment")
        assert (counters.bytes_out, counters.records_out) == (len(part.records), 3)
        assert (cache.hits, cache.misses) == (2, 0)
