"""Produce: every refusal, and the outcome of records between append and reply."""

import gc
import struct
import threading
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from kafscale.clocks import now_ms
from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.partition_record import decode_partition_record, encode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.produce import encode_produce_response
from kafscale.protocol.record_batch import TRANSACTIONAL_FLAG, write_crc
from kafscale.serving import batch_opener, pending_produce, store_deadline
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import lead_elsewhere
from tests.support.waiting import PATIENCE_SEC

DAY_MS = 24 * 60 * 60 * 1000


async def stored(client: Client, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    part = (await client.fetch(topic, {partition: 0}, max_wait_ms=0))[partition]
    assert part.error_code == 0
    return wire.records_in(part.records)


async def produced_once_led(broker: InProcessBroker, client: Client, topic: str, value: bytes) -> int:
    """Produce as soon as the broker leads the partition; gives the offset."""
    await until(lambda: broker.process.serving.logs.partition(topic, 0), "the partition is led")
    part = await client.produce(topic, 0, wire.batch([value]))
    assert part.error_code == 0
    return int(part.base_offset)


def changed(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with one field changed and its CRC made right."""
    data = bytearray(batch)
    struct.pack_into(layout, data, position, value)
    write_crc(data, 0)
    return bytes(data)


BATCH = wire.batch([b"x", b"y"])
REFUSALS: dict[str, tuple[ErrorCode, bytes]] = {
    "no records": (ErrorCode.INVALID_RECORD, b""),
    "noise": (ErrorCode.CORRUPT_MESSAGE, bytes(10)),
    "cut": (ErrorCode.CORRUPT_MESSAGE, BATCH[:-1]),
    "crc": (ErrorCode.CORRUPT_MESSAGE, BATCH[:-1] + b"\x7f"),
    "magic 3": (ErrorCode.CORRUPT_MESSAGE, BATCH[:16] + b"\x03" + BATCH[17:]),
    "magic 1": (ErrorCode.INVALID_RECORD, BATCH[:16] + b"\x01" + BATCH[17:]),
    "too large": (ErrorCode.MESSAGE_TOO_LARGE, wire.batch([bytes(5000)])),
    "count": (ErrorCode.INVALID_RECORD, changed(BATCH, 57, ">i", 3)),
    "control batch": (ErrorCode.INVALID_RECORD, changed(BATCH, 21, ">h", 0x20)),
    "log append time": (ErrorCode.INVALID_TIMESTAMP, changed(BATCH, 21, ">h", 0x08)),
    "transactional": (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        changed(BATCH, 21, ">h", TRANSACTIONAL_FLAG),
    ),
    "two batches": (ErrorCode.INVALID_RECORD, BATCH + BATCH),
    "two batches with damage": (ErrorCode.INVALID_RECORD, BATCH[:-1] + b"\x7f" + BATCH),
    "bytes after the batch": (ErrorCode.INVALID_RECORD, BATCH + bytes(10)),
}


@on_uvloop
async def test_an_answered_request_leaves_no_garbage_cycle() -> None:
    """Thousands a second wait for a collection otherwise, and each collection looks through all that wait."""

    def requests_in_memory() -> int:
        return sum(type(each) is pending_produce.PendingProduce for each in gc.get_objects())

    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        gc.collect()
        gc.disable()
        try:
            before = requests_in_memory()
            for _ in range(10):
                assert (await client.produce(topic, 0, BATCH)).error_code == 0
            assert requests_in_memory() == before
        finally:
            gc.enable()


@pytest.mark.parametrize("name", REFUSALS)
@on_uvloop
async def test_a_refused_batch_stores_nothing_and_spares_the_others(name: str) -> None:
    code, records = REFUSALS[name]
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2, configs={"max.message.bytes": 4000})
        await client.send_produce(topic, {0: records, 1: wire.batch([b"good"])})
        _, parts = await client.receive_produce()
        assert (parts[0].error_code, parts[0].base_offset) == (code, -1)
        assert parts[0].error_message
        assert (parts[1].error_code, parts[1].base_offset) == (0, 0)
        assert await stored(client, topic, 0) == []
        assert await stored(client, topic, 1) == [(0, b"good")]
        assert broker.metrics.topic(topic).records_in == 1


@on_uvloop
async def test_null_records_are_refused() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        part = await client.produce(topic, 0, None)  # type: ignore[arg-type]
        assert part.error_code == ErrorCode.INVALID_RECORD


@on_uvloop
async def test_zstd_needs_a_version_that_knows_it() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for version, code in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)):
            part = await client.produce(topic, 0, wire.batch([b"x" * 500], codec="zstd"), version=version)
            assert part.error_code == code


@on_uvloop
async def test_a_future_timestamp_is_refused_unless_log_append_time() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        strict = await broker.create_topic("strict", configs={"message.timestamp.after.max.ms": DAY_MS})
        own = await broker.create_topic(
            "own",
            configs={"message.timestamp.after.max.ms": DAY_MS, "message.timestamp.type": "LogAppendTime"},
        )
        late = wire.batch([b"x"], timestamp=now_ms() + 2 * DAY_MS)
        assert (await client.produce(strict, 0, late)).error_code == ErrorCode.INVALID_TIMESTAMP
        soon = wire.batch([b"x"], timestamp=now_ms() + DAY_MS // 2)
        assert (await client.produce(strict, 0, soon)).error_code == 0
        before = now_ms()
        part = await client.produce(own, 0, late)
        assert part.error_code == 0
        assert before <= part.log_append_time_ms <= now_ms()
        (record,) = DefaultRecordBatch(bytes((await client.fetch(own, {0: 0}))[0].records))
        assert record.timestamp == part.log_append_time_ms


@pytest.mark.parametrize("acks", [2, -2, 32767])
@on_uvloop
async def test_acks_other_than_kafkas_are_refused(acks: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        part = await client.produce(topic, 0, BATCH, acks=acks)
        assert part.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert await stored(client, topic) == []


@on_uvloop
async def test_acks_1_waits_like_acks_all() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: BATCH}, acks=1)
            await hold.reached()
            assert broker.metrics.apis["PRODUCE"].duration.total == 0
        assert (await client.receive_produce())[1][0].base_offset == 0


@on_uvloop
async def test_a_request_without_topics_or_partitions_is_answered() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        request = wire.produce_request(topic, {})
        assert (await client.call(request, ProduceResponse, 9)).responses[0].partition_responses == []
        request.topic_data = []
        assert (await client.call(request, ProduceResponse, 9)).responses == []


@pytest.mark.parametrize("version", [3, 8, 9])
@on_uvloop
async def test_a_name_of_32_kib_is_refused_and_spoils_no_records(version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        request = wire.produce_request(topic, {0: BATCH})
        request.topic_data += wire.produce_request("x" * 32_760, dict.fromkeys(range(5), BATCH)).topic_data
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send(request, version)
            await other.send_produce(topic, {0: BATCH})
            await hold.reached()
        reply = await client.receive(ProduceResponse, version)
        assert [part.error_code for one in reply.responses for part in one.partition_responses] == [
            0,
            *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5,
        ]
        assert (await other.receive_produce())[1][0].base_offset == 2
        assert broker.budget.used_bytes == 0


@on_uvloop
async def test_the_reply_to_a_long_topic_name_is_not_multiplied() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        request = wire.produce_request("x" * 32_000, dict.fromkeys(range(5000), b"x"))
        frame = client.frame(request, 9)
        await client.send_bytes(frame)
        assert len(await client.receive_frame()) < 10 * len(frame)
        assert broker.connection_count == 1


@on_uvloop
async def test_a_reply_that_fails_ends_only_its_own_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(correlation_id: int, version: int, topics: Any, **leaders: Any) -> bytes:
        if version == 8:
            raise struct.error("a defect")
        return encode_produce_response(correlation_id, version, topics, **leaders)

    monkeypatch.setattr(pending_produce, "encode_produce_response", broken)
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: BATCH}, version=8)
            await hold.reached()
            await client.send_produce(topic, {0: BATCH}, version=8)
            await other.send_produce(topic, {0: BATCH})
            await until(lambda: len(broker.process.serving.purgatory) == 3, "all have come")
        assert await client.closed_by_peer()
        assert (await other.receive_produce())[1][0].base_offset == 4
        assert (await other.produce(topic, 0, BATCH)).base_offset == 6
        assert broker.budget.used_bytes == 0


# --- who leads


@on_uvloop
async def test_a_replaced_leader_refuses_waiting_and_new_records() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as consumer:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"published"]))
        await consumer.send_fetch(topic, {0: 1}, max_wait_ms=60_000)
        await until(lambda: broker.partition(topic)._listeners, "the fetch waits")
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"sealed"])})
            await hold.reached()
            await client.send_produce(topic, {0: wire.batch([b"behind it"])})
            await until(lambda: len(broker.process.serving.purgatory) == 2, "both have come")
            await lead_elsewhere(broker.metadata, topic, objects=broker.objects.inner)
        for _ in range(2):
            assert (await client.receive_produce())[1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = await client.produce(topic, 0, BATCH)
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Told at once, so that it looks for the new leader; what is published can still be read here.
        assert (await consumer.receive_fetch())[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await stored(client, topic) == [(0, b"published")]
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


@on_uvloop
async def test_a_partition_is_led_again_under_the_next_epoch() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"before"]))
        lease = await lead_elsewhere(broker.metadata, topic, objects=broker.objects.inner)
        part = await client.produce(topic, 0, wire.batch([b"refused"]))
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await broker.metadata.revoke_lease(lease)
        assert await produced_once_led(broker, client, topic, b"after") > 0
        assert [value for _, value in await stored(client, topic)] == [b"before", b"after"]
        assert broker.partition(topic).record.leader_epoch == 2


@on_uvloop
async def test_a_log_that_cannot_be_opened_is_a_storage_error() -> None:
    checkpoint_key = object_keys.checkpoint_key("default", "topic", 0, 0, 0, "token")
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        key = keys.partition(topic, 0)
        held = await broker.metadata.get(key)
        assert held is not None
    record = decode_partition_record(key, held.value)
    damaged = encode_partition_record(type(record)(**{**fields_of(record), "checkpoint_key": checkpoint_key}))
    await broker.metadata.transact([], [Put(key, damaged)])
    async with (
        in_process_broker(metadata=broker.metadata, objects=broker.objects) as again,
        again.connect() as client,
    ):
        for _ in range(2):
            part = await client.produce(topic, 0, BATCH)
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fetched = (await client.fetch(topic, {0: 0}, max_wait_ms=0))[0]
        assert fetched.error_code == 0
        await again.objects.inner.put(checkpoint_key, [encode_checkpoint(Checkpoint(end_offset=0))])
        part = await client.produce(topic, 0, BATCH)
        assert (part.error_code, part.base_offset) == (0, 0)
        assert again.objects.count("get", checkpoint_key) == 3


def fields_of(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


@on_uvloop
async def test_producers_wait_in_order_while_a_log_is_opened() -> None:
    checkpoint_key = object_keys.checkpoint_key("default", "topic", 0, 0, 0, "token")
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        key = keys.partition(topic, 0)
        held = await broker.metadata.get(key)
        assert held is not None
    record = decode_partition_record(key, held.value)
    value = encode_partition_record(type(record)(**{**fields_of(record), "checkpoint_key": checkpoint_key}))
    await broker.metadata.transact([], [Put(key, value)])
    await broker.objects.inner.put(checkpoint_key, [encode_checkpoint(Checkpoint(end_offset=0))])
    async with (
        in_process_broker(metadata=broker.metadata, objects=broker.objects) as again,
        again.connect() as client,
        again.connect() as other,
    ):
        with again.objects.hold("get", checkpoint_key) as hold:
            for number in range(3):
                await client.send_produce(topic, {0: wire.batch([b"%d" % number])})
            await hold.reached()
            await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)  # others are served meanwhile
        offsets = [(await client.receive_produce())[1][0].base_offset for _ in range(3)]
        assert offsets == [0, 1, 2]
        assert await stored(client, topic) == [(0, b"0"), (1, b"1"), (2, b"2")]
        assert again.objects.count("get", checkpoint_key) == 1


# --- repeated partitions, sequences


@on_uvloop
async def test_a_partition_named_twice_is_appended_twice() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        request = wire.produce_request(topic, {0: wire.batch([b"a"])})
        request.topic_data += wire.produce_request(topic, {0: wire.batch([b"b"])}).topic_data
        reply = await client.call(request, ProduceResponse, 9)
        assert [part.base_offset for one in reply.responses for part in one.partition_responses] == [0, 1]
        assert await stored(client, topic) == [(0, b"a"), (1, b"b")]


@on_uvloop
async def test_retries_gaps_and_old_epochs_of_a_producer() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()

        def batch(sequence: int, epoch: int = 0) -> bytes:
            return wire.batch([b"%d" % sequence], producer_id=7, producer_epoch=epoch, sequence=sequence)

        async def outcome(records: bytes) -> tuple[int, int]:
            part = await client.produce(topic, 0, records)
            return part.error_code, part.base_offset

        assert await outcome(batch(0)) == (0, 0)
        assert await outcome(batch(1)) == (0, 1)
        assert await outcome(batch(1)) == (0, 1)
        assert await outcome(batch(0)) == (0, 0)
        assert await outcome(batch(5)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await outcome(batch(0, epoch=1)) == (0, 2)
        assert await outcome(batch(2)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await stored(client, topic) == [(0, b"0"), (1, b"1"), (2, b"0")]


@on_uvloop
async def test_a_retry_waits_for_its_unpublished_records() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as again:
        topic = await broker.create_topic()
        batch = wire.batch([b"once"], producer_id=7, producer_epoch=0, sequence=0)
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: batch})
            await hold.reached()
            await again.send_produce(topic, {0: batch})
            await until(lambda: len(broker.process.serving.purgatory) == 2, "both wait")
        assert (await client.receive_produce())[1][0].base_offset == 0
        assert (await again.receive_produce())[1][0].base_offset == 0
        assert await stored(client, topic) == [(0, b"once")]


# --- time


@on_uvloop
async def test_a_request_that_times_out_has_its_records_stored_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        await client.produce(topic, 1, wire.batch([b"in time"]))
        with broker.objects.hold("put_if_absent", "*.entry"):
            await client.send_produce(
                topic, {0: wire.batch([b"late"]), 1: wire.batch([b"late, too"])}, timeout_ms=50
            )
            _, parts = await client.receive_produce()
            for part in parts.values():
                assert (part.error_code, part.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            assert await stored(client, topic, 0) == []
            assert await stored(client, topic, 1) == [(0, b"in time")]
        assert (await client.produce(topic, 0, wire.batch([b"next"]))).base_offset == 1
        assert await stored(client, topic, 0) == [(0, b"late"), (1, b"next")]
        assert not len(broker.process.serving.purgatory)
        assert broker.budget.used_bytes == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
@on_uvloop
async def test_a_request_with_timeout_0_is_answered_at_the_next_sweep(timeout_ms: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry"):
            part = await client.produce(topic, 0, BATCH, timeout_ms=timeout_ms)
            assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
@on_uvloop
async def test_acks_1_waits_for_the_flush_whatever_its_timeout(timeout_ms: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: BATCH}, acks=1, timeout_ms=timeout_ms)
            await hold.reached()
            # Answered by the sweep that would have answered the first.
            part = await other.produce(topic, 0, BATCH, timeout_ms=timeout_ms)
            assert part.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert len(broker.process.serving.purgatory) == 1
        part = (await client.receive_produce())[1][0]
        assert (part.error_code, part.base_offset) == (0, 0)


@on_uvloop
async def test_acks_1_is_answered_when_a_store_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_deadline, "STORE_DEADLINE_SEC", 0.05)
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry"):
            part = await client.produce(topic, 0, BATCH, acks=1, timeout_ms=0)
            assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


# --- stores that fail


@on_uvloop
async def test_a_store_outage_delays_records_without_loss_or_repeat() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        broker.objects.fail(
            "put_if_absent", "*.entry", StoreUnavailableError("away"), StoreIndeterminateError("who knows")
        )
        assert (await client.produce(topic, 0, wire.batch([b"once"]))).base_offset == 0
        assert await stored(client, topic) == [(0, b"once")]


@on_uvloop
async def test_a_defective_store_fails_one_flush_not_the_partition() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"before"]))
        broker.objects.fail("put_if_absent", "*.entry", RuntimeError("a defect"))
        part = await client.produce(topic, 0, wire.batch([b"lost"]))
        # What the call did before it failed is not known.
        assert (part.error_code, part.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert broker.budget.used_bytes == 0
        assert await produced_once_led(broker, client, topic, b"after") >= 1
        assert broker.partition(topic).record.leader_epoch == 1
        assert [value for _, value in await stored(client, topic)] == [b"before", b"after"]


# --- codecs and message sets


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@on_uvloop
async def test_a_topic_codec_compresses_only_plain_batches(codec: str) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(configs={"compression.type": codec})
        values = [b"again and again " * 100] * 3
        gzipped = wire.batch(values, codec="gzip")
        await client.produce(topic, 0, wire.batch(values))
        await client.produce(topic, 0, gzipped)
        records = bytes((await client.fetch(topic, {0: 0}))[0].records)
        assert [value for _, value in wire.records_in(records)] == values * 2
        first = DefaultRecordBatch(records)
        assert first.compression_type == wire.CODECS[codec]
        assert len(records) < 1500
        assert records.endswith(gzipped[21:])


def message_set(values: list[bytes], magic: int, codec: str) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=wire.CODECS[codec], batch_size=1 << 24)
    for number, value in enumerate(values):
        builder.append(number, timestamp=1000 + number, key=None, value=value)
    return bytes(builder.build())


@pytest.mark.parametrize(("magic", "version"), [(0, 0), (0, 1), (1, 2)])
@pytest.mark.parametrize("codec", ["none", "gzip"])
@on_uvloop
async def test_a_message_set_becomes_batches(magic: int, version: int, codec: str) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        values = [b"%d" % number for number in range(5)]
        sets = {0: message_set(values, magic, codec), 1: wire.batch(values)}
        await client.send_produce(topic, sets, version=version)
        _, parts = await client.receive_produce(version=version)
        assert [(part.error_code, part.base_offset) for part in parts.values()] == [(0, 0), (0, 0)]
        for partition in (0, 1):
            assert await stored(client, topic, partition) == list(enumerate(values))


@on_uvloop
async def test_a_damaged_message_set_is_refused_with_its_own_code() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        records = message_set([b"x"], 1, "none")
        part = await client.produce(topic, 0, records[:-1] + b"y", version=2)
        assert part.error_code == ErrorCode.CORRUPT_MESSAGE


@on_uvloop
async def test_converting_an_old_message_set_delays_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()

    def slow(records: memoryview, max_message_bytes: int, opened_limit_bytes: int) -> bytes:
        assert may_go_on.wait(PATIENCE_SEC)
        return convert_message_set(records, max_message_bytes, opened_limit_bytes)

    monkeypatch.setattr(batch_opener, "convert_message_set", slow)
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        await client.send_produce(topic, {0: message_set([b"old"], 1, "gzip")}, version=2)
        await until(lambda: broker.process.basics.listener._requests, "the conversion has begun")
        assert (await other.produce(topic, 0, wire.batch([b"new"]))).base_offset == 0
        may_go_on.set()
        assert (await client.receive_produce(version=2))[1][0].base_offset == 1


# --- requests that take long


async def turns_of_others(broker: InProcessBroker, client: Client, frame: bytes) -> int:
    """How often another client is answered while a request is in flight."""
    turns = 0
    async with broker.connect() as other:
        await client.send_bytes(frame)
        await until(lambda: broker.process.basics.listener._requests, "the request is in flight")
        while broker.process.basics.listener._requests:
            await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            turns += 1
    return turns


@on_uvloop
async def test_other_requests_run_during_one_for_many_partitions() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        partitions = {0: BATCH, **dict.fromkeys(range(100, 3000), b"x")}
        assert (
            await turns_of_others(broker, client, client.frame(wire.produce_request(topic, partitions), 9))
            > 1
        )
        _, parts = await client.receive_produce()
        assert len(parts) == len(partitions)
        assert parts[0].error_code == 0


@on_uvloop
async def test_a_large_request_lets_others_have_their_turn() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=20)
        partitions = {number: wire.batch([bytes([number]) * 150_000]) for number in range(20)}
        assert (
            await turns_of_others(broker, client, client.frame(wire.produce_request(topic, partitions), 9))
            > 1
        )
        _, parts = await client.receive_produce()
        assert {part.error_code for part in parts.values()} == {0}
        for number in range(20):
            assert await stored(client, topic, number) == [(0, bytes([number]) * 150_000)]


@on_uvloop
async def test_produced_bytes_records_and_batches_are_counted() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for _ in range(2):
            await client.produce(topic, 0, BATCH)
        counters = broker.metrics.topic(topic)
        assert (counters.bytes_in, counters.records_in, counters.batches_in) == (2 * len(BATCH), 4, 2)
