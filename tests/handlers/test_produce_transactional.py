"""Transactional batches: the leader asks for the transaction once, and lets nothing in that belongs to none."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.topic_record import encode_coordinator_record
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import CoordinatorRecord
from kafscale.metadata.store import KeyValue, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

ID, PRODUCER = "copier", 7
EMPTY = TransactionRecord(
    producer_id=PRODUCER, producer_epoch=0, timeout_ms=60_000, state=TransactionState.EMPTY, updated_ms=1
)


def batch(*values: bytes, sequence: int = 0, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    return wire.batch(
        list(values),
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=True,
    )


async def send(
    client: Client, topic: str, partitions: dict[int, bytes], version: int = 11, name: str | None = ID
) -> None:
    request = wire.produce_request(topic, partitions)
    request.transactional_id = name
    await client.send(request, version)


async def produce(
    client: Client, topic: str, partitions: dict[int, bytes], version: int = 11, name: str | None = ID
) -> dict[int, Any]:
    await send(client, topic, partitions, version, name)
    _, parts = await client.receive_produce(version=version)
    return parts


async def put_record(broker: InProcessBroker, record: TransactionRecord) -> None:
    await broker.metadata.transact([], [Put(keys.transaction(ID), encode_transaction_record(record))])


async def record_of(broker: InProcessBroker) -> TransactionRecord:
    found = await broker.metadata.get(keys.transaction(ID))
    assert found is not None
    return decode_transaction_record(found.key, found.value)


async def give_shard_away(broker: InProcessBroker) -> None:
    """Let another broker coordinate the transactional id: one that carries out no decision."""
    shard, other = keys.shard_of(ID), CoordinatorRecord(broker_id=99, coordinator_epoch=9)
    await broker.metadata.transact([], [Put(keys.coordinator(shard), encode_coordinator_record(other))])
    await until(lambda: broker.process.serving.view.coordinator(shard) == 99, "the other coordinator")


def ongoing(broker: InProcessBroker, topic: str, *partitions: int) -> TransactionRecord:
    topic_id = broker.partition(topic).topic_id
    return replace(
        EMPTY,
        state=TransactionState.ONGOING,
        started_ms=2**53,  # It does not time out.
        topics=(TransactionTopic(topic, topic_id, partitions),),
    )


@on_uvloop
async def test_a_partition_of_the_transaction_takes_its_batches() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        await put_record(broker, ongoing(broker, topic, 0))
        parts = await produce(client, topic, {0: batch(b"a"), 1: batch(b"b")})
        assert (parts[0].error_code, parts[0].base_offset) == (0, 0)
        assert parts[1].error_code == ErrorCode.TRANSACTION_ABORTABLE
        parts = await produce(client, topic, {1: batch(b"b")}, version=9)
        assert parts[1].error_code == ErrorCode.INVALID_TXN_STATE
        partition = broker.partition(topic)
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)


@on_uvloop
async def test_version_12_adds_the_partitions_of_a_request_at_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=3)
        await put_record(broker, EMPTY)
        parts = await produce(client, topic, {0: batch(b"a"), 2: batch(b"c")}, version=12)
        assert {index: part.error_code for index, part in parts.items()} == {0: 0, 2: 0}
        record = await record_of(broker)
        assert (record.state, record.topics[0].partitions) == (TransactionState.ONGOING, (0, 2))


class CountedReads(MemoryStore):
    """Counts the questions about transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, key: str) -> KeyValue | None:
        found = await super().get(key)
        if key.startswith(keys.TRANSACTIONS):
            self.questions += 1
            await self.may_answer.wait()
        return found


@on_uvloop
async def test_the_store_is_asked_once_for_a_transaction_and_partition() -> None:
    store = CountedReads()
    async with in_process_broker(metadata=store) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await put_record(broker, ongoing(broker, topic, 0))
        for sequence in range(3):
            assert (await produce(client, topic, {0: batch(b"a", sequence=sequence)}))[0].error_code == 0
        # A retry is answered from the log.
        assert (await produce(client, topic, {0: batch(b"a", sequence=1)}))[0].base_offset == 1
        assert store.questions == 1


@pytest.mark.parametrize("version", [11, 12])
@on_uvloop
async def test_a_fenced_or_unknown_producer_stores_nothing(version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await put_record(broker, replace(ongoing(broker, topic, 0), producer_epoch=2))
        parts = await produce(client, topic, {0: batch(b"a", epoch=1)}, version)
        assert parts[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        parts = await produce(client, topic, {0: batch(b"a", producer_id=8)}, version)
        assert parts[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        parts = await produce(client, topic, {0: batch(b"a")}, version, name="nobody")
        assert parts[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert broker.partition(topic).high_watermark == 0


@on_uvloop
async def test_an_answer_from_before_the_marker_lets_nothing_in() -> None:
    """The question was answered with yes, and the transaction was ended here before the batch was appended."""
    store = CountedReads()
    async with in_process_broker(metadata=store) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        record = ongoing(broker, topic, 0)
        await put_record(broker, record)
        store.may_answer.clear()
        await send(client, topic, {0: batch(b"late")})
        await until(lambda: store.questions, "the question")
        marker = MarkerRecord(
            transactional_id=ID,
            commit=False,
            producer_epoch=1,
            coordinator_epoch=0,
            transaction_version=1,
            decided_ms=1,
            topic_id=record.topics[0].topic_id,
        )
        key = keys.partition_marker(topic, 0, PRODUCER)
        ended = replace(record, state=TransactionState.COMPLETE_ABORT, topics=(), producer_epoch=0)
        await store.transact([], [Put(key, encode_marker_record(marker))])
        await put_record(broker, ended)
        while await store.get(key) is not None:  # noqa: ASYNC110 - the broker deletes it
            await asyncio.sleep(0.01)
        store.may_answer.set()
        _, parts = await client.receive_produce(version=11)
        assert parts[0].error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert broker.partition(topic).high_watermark == 0


@on_uvloop
async def test_marker_of_the_last_transaction_refuses_no_batch() -> None:
    """A client with KIP-890 sends at once after EndTxn: the addition waits until the last marker is written."""
    store = CountedReads()
    async with in_process_broker(metadata=store) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await put_record(broker, EMPTY)
        assert (await produce(client, topic, {0: batch(b"a")}, version=12))[0].error_code == 0
        decided = replace(await record_of(broker), state=TransactionState.PREPARE_COMMIT, producer_epoch=1)
        await put_record(broker, decided)
        asked = store.questions
        store.may_answer.clear()
        await send(client, topic, {0: batch(b"b", epoch=1)}, version=12)
        await until(lambda: store.questions > asked, "the question")
        marker = MarkerRecord(
            transactional_id=ID,
            commit=True,
            producer_epoch=1,
            coordinator_epoch=0,
            transaction_version=2,
            decided_ms=1,
            topic_id=broker.partition(topic).topic_id,
        )
        key = keys.partition_marker(topic, 0, PRODUCER)
        await store.transact([], [Put(key, encode_marker_record(marker))])
        while await store.get(key) is not None:  # noqa: ASYNC110 - the broker deletes it
            await asyncio.sleep(0.01)
        await put_record(broker, replace(decided, state=TransactionState.COMPLETE_COMMIT, topics=()))
        store.may_answer.set()
        _, parts = await client.receive_produce(version=12)
        assert (parts[0].error_code, parts[0].base_offset) == (0, 2)


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)]
)
@on_uvloop
async def test_the_transaction_before_must_be_complete(version: int, code: ErrorCode) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await give_shard_away(broker)
        record = replace(ongoing(broker, topic, 0), state=TransactionState.PREPARE_COMMIT)
        await put_record(broker, record)
        parts = await produce(client, topic, {0: batch(b"a")}, version)
        assert parts[0].error_code == code
        assert broker.partition(topic).high_watermark == 0


@on_uvloop
async def test_a_transactional_batch_needs_a_transactional_id() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        parts = await produce(client, topic, {0: batch(b"a")}, name=None)
        assert parts[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        parts = await produce(client, topic, {0: batch(b"a", producer_id=-1, sequence=-1, epoch=-1)})
        assert parts[0].error_code == ErrorCode.INVALID_RECORD


@on_uvloop
async def test_a_producer_does_not_mix_both_kinds_in_a_partition() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await put_record(broker, ongoing(broker, topic, 0))
        assert (await produce(client, topic, {0: batch(b"a")}))[0].error_code == 0
        plain = wire.batch([b"b"], producer_id=PRODUCER, producer_epoch=0, sequence=1)
        assert (await produce(client, topic, {0: plain}))[0].error_code == ErrorCode.INVALID_TXN_STATE
        other = wire.batch([b"c"], producer_id=8, producer_epoch=0, sequence=0)
        assert (await produce(client, topic, {0: other}))[0].base_offset == 1


@on_uvloop
async def test_a_store_that_is_away_gets_a_retriable_error() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await broker.metadata.transact([], [Put(keys.transaction(ID), b"damaged")])
        parts = await produce(client, topic, {0: batch(b"a")})
        assert parts[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
