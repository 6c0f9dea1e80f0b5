"""Markers of decided transactions: written once where something is open, and their keys deleted only then."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from kafscale.errors import StoreIndeterminateError
from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.partition_transactions import AbortedTransaction, OpenTransaction
from kafscale.log.leadership.events import Event
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import (
    Changes,
    Compare,
    Delete,
    KeyValue,
    Operation,
    Put,
    Snapshot,
    TransactionResult,
)
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.log.brokers import BrokerParts, Cluster, cluster_scenario

TOPIC, PRODUCER = "orders", 7
KEY = keys.partition_marker(TOPIC, 0, PRODUCER)


def marker(topic_id: uuid.UUID, *, commit: bool, epoch: int = 0) -> bytes:
    return encode_marker_record(
        MarkerRecord(
            transactional_id="copier",
            commit=commit,
            producer_epoch=epoch,
            coordinator_epoch=3,
            transaction_version=1,
            decided_ms=1,
            topic_id=topic_id,
        )
    )


async def decide(cluster: Cluster, broker: BrokerParts, *, commit: bool, epoch: int = 0) -> None:
    value = marker(broker.partition(TOPIC).topic_id, commit=commit, epoch=epoch)
    await cluster.metadata.transact([], [Put(KEY, value)])


async def open_transaction(broker: BrokerParts, *values: bytes, sequence: int = 0, epoch: int = 0) -> int:
    return await broker.produce(
        TOPIC,
        0,
        *values,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=True,
    )


async def is_marked(cluster: Cluster) -> bool:
    await cluster.settle()
    return await cluster.metadata.get(KEY) is None


@cluster_scenario(flush_interval_ms=5)
async def test_a_marker_ends_what_is_open_and_its_key_goes(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await open_transaction(broker, b"a", b"b")
    assert broker.partition(TOPIC).last_stable_offset == 0
    await decide(cluster, broker, commit=False)
    assert await is_marked(cluster)
    state = await cluster.state(TOPIC)
    assert state.transactions == broker.partition(TOPIC).record.transactions
    assert state.log_end_offset == state.last_stable_offset == 3
    assert state.transactions.aborted == (AbortedTransaction(PRODUCER, 0, 2, 3),)
    # TV1 goes on in the same epoch, and with the same sequence numbers.
    await open_transaction(broker, b"c", sequence=2)
    await decide(cluster, broker, commit=True)
    assert await is_marked(cluster)
    assert (await cluster.state(TOPIC)).last_stable_offset == 5
    assert len((await cluster.state(TOPIC)).transactions.aborted) == 1


@cluster_scenario(flush_interval_ms=5)
async def test_a_marker_of_a_new_epoch_begins_its_sequences_at_0(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await open_transaction(broker, b"a")
    await decide(cluster, broker, commit=True, epoch=1)
    assert await is_marked(cluster)
    with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
        await open_transaction(broker, b"late", sequence=1)
    assert await open_transaction(broker, b"b", epoch=1) == 2


@cluster_scenario(flush_interval_ms=5)
async def test_where_nothing_is_open_the_key_alone_goes(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await broker.produce(TOPIC, 0, b"plain")
    asked = broker.parts.markers.verifications.begin(broker.partition(TOPIC).number, PRODUCER)
    await decide(cluster, broker, commit=True)
    assert await is_marked(cluster)
    assert (await cluster.state(TOPIC)).log_end_offset == 1
    assert not asked.is_valid


@cluster_scenario(flush_interval_ms=5)
async def test_the_next_leader_goes_on_with_a_transaction(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC)
    leader, other = (first, second) if first.led() else (second, first)
    await open_transaction(leader, b"a")
    await leader.stop()
    await cluster.settle()
    state = await cluster.state(TOPIC)
    assert state.transactions.open == (OpenTransaction(PRODUCER, 0, 0),)
    await decide(cluster, other, commit=False)
    assert await is_marked(cluster)
    assert (await cluster.state(TOPIC)).transactions.aborted == (AbortedTransaction(PRODUCER, 0, 1, 2),)


@cluster_scenario(flush_interval_ms=5)
async def test_a_decision_before_the_claim_is_found(cluster: Cluster) -> None:
    """The key is older than the term of the leader, and there."""
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC)
    leader = first if first.led() else second
    await open_transaction(leader, b"a")
    topic_id = leader.partition(TOPIC).topic_id
    await leader.stop()
    await cluster.metadata.transact([], [Put(KEY, marker(topic_id, commit=True))])
    await cluster.settle()
    assert await is_marked(cluster)
    state = await cluster.state(TOPIC)
    assert (state.transactions.open, state.last_stable_offset) == ((), 2)


class LostReads(MemoryStore):
    """The answer to the first look at the key of a marker gets lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await super().transact(compares, operations)
        if not operations and any(one.key == KEY for one in compares) and not self.lost:
            self.lost += 1
            raise StoreIndeterminateError("no answer")
        return result


def test_look_at_a_key_without_an_answer_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    """It was logged as an error, as what a broker goes on without."""

    @cluster_scenario(flush_interval_ms=5)
    async def scenario(cluster: Cluster) -> None:
        store = LostReads()
        cluster.metadata = store
        (leader,) = await cluster.start(1)
        await cluster.create_topic(TOPIC)
        await open_transaction(leader, b"a")
        topic_id = leader.partition(TOPIC).topic_id
        await leader.stop()
        await store.transact([], [Put(KEY, marker(topic_id, commit=True))])
        await cluster.start(2)
        await cluster.settle()
        assert await is_marked(cluster)
        assert store.lost

    scenario()
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


class OldPicture(MemoryStore):
    """Its watch of markers begins with a key that is long gone, as one that lags would."""

    def __init__(self, old: KeyValue) -> None:
        super().__init__()
        self._old = old

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        if prefix == keys.PARTITION_MARKERS:
            yield Snapshot(items=(self._old,), revision=1)
        async with aclosing(super().watch(prefix)) as events:
            async for event in events:
                if prefix == keys.PARTITION_MARKERS and isinstance(event, Snapshot):
                    await asyncio.sleep(1000)
                yield event


def test_a_marker_that_is_gone_does_not_end_the_next_transaction() -> None:
    """With TV1 the next transaction has the same epoch, so the old marker would fit it."""

    @cluster_scenario(flush_interval_ms=5)
    async def scenario(cluster: Cluster) -> None:
        topic_id = uuid.UUID(int=5)
        old = KeyValue(key=KEY, value=marker(topic_id, commit=True), mod_revision=2)
        cluster.metadata = OldPicture(old)
        (broker,) = await cluster.start(1)
        await cluster.create_topic(TOPIC)
        broker.partition(TOPIC).topic_id = topic_id
        await open_transaction(broker, b"a")
        broker.parts.markers.reconsider(broker.partition(TOPIC))
        await cluster.settle()
        assert broker.partition(TOPIC).record.transactions.open == (OpenTransaction(PRODUCER, 0, 0),)
        assert broker.partition(TOPIC).record.log_end_offset == 1

    scenario()


class LostAnswers(MemoryStore):
    """Deletes markers, and says once that it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await super().transact(compares, operations)
        if any(isinstance(one, Delete) and one.key == KEY for one in operations) and not self.lost:
            self.lost += 1
            raise StoreIndeterminateError("no answer")
        return result


def test_a_deletion_without_an_answer_writes_no_second_marker() -> None:
    @cluster_scenario(flush_interval_ms=5)
    async def scenario(cluster: Cluster) -> None:
        store = LostAnswers()
        cluster.metadata = store
        (broker,) = await cluster.start(1)
        await cluster.create_topic(TOPIC)
        await open_transaction(broker, b"a")
        await decide(cluster, broker, commit=True)
        # The next transaction begins while the answer is missing.
        await asyncio.sleep(0.1)
        assert await store.get(KEY) is None
        await open_transaction(broker, b"b", sequence=1)
        assert await is_marked(cluster)
        assert store.lost
        assert broker.partition(TOPIC).record.transactions.open == (OpenTransaction(PRODUCER, 0, 2),)
        assert broker.partition(TOPIC).record.log_end_offset == 3

    scenario()


@cluster_scenario(flush_interval_ms=5)
async def test_a_leader_that_was_replaced_deletes_no_key(cluster: Cluster) -> None:
    """It may believe that nothing is open because another broker has what is."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    leader_key = keys.leader(TOPIC, 0)
    found = await cluster.metadata.get(leader_key)
    assert found is not None
    await cluster.metadata.transact([], [Put(leader_key, found.value)])
    await decide(cluster, broker, commit=True)
    await cluster.settle()
    assert await cluster.metadata.get(KEY) is not None


@cluster_scenario(flush_interval_ms=5)
async def test_a_damaged_marker_hurts_its_producer_alone(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await cluster.metadata.transact([], [Put(keys.partition_marker(TOPIC, 0, 8), b"\x00\x01damaged")])
    await open_transaction(broker, b"a")
    await decide(cluster, broker, commit=True)
    assert await is_marked(cluster)
    assert broker.partition(TOPIC).last_stable_offset == 2


@cluster_scenario(flush_interval_ms=5)
async def test_an_operator_ends_a_transaction(cluster: Cluster) -> None:
    """`kafka-transactions.sh abort`."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await open_transaction(broker, b"a", epoch=2)
    partition, markers = broker.partition(TOPIC), broker.parts.markers
    with pytest.raises(KafkaError) as refused:
        await markers.end_transaction(partition, EndOfTransaction(PRODUCER, 1, 0, is_commit=False))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    await markers.end_transaction(partition, EndOfTransaction(PRODUCER, 2, 0, is_commit=False))
    assert partition.record.transactions.aborted == (AbortedTransaction(PRODUCER, 0, 1, 2),)


@cluster_scenario(flush_interval_ms=5)
async def test_a_leader_that_resigns_writes_no_marker(cluster: Cluster) -> None:
    """Its record may be stored as the last word already, and the next leader begin where the marker would be."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await open_transaction(broker, b"a")
    partition = broker.partition(TOPIC)
    broker.logs.apply(partition, Event.RESIGN)
    await decide(cluster, broker, commit=True)
    await cluster.settle()
    assert partition.record.log_end_offset == 1
    assert await cluster.metadata.get(KEY) is not None
