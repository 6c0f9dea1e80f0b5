"""A producer's sequence is refused by a broker that is sure that it leads, and by no other."""

import asyncio
from dataclasses import replace

import pytest

from kafscale.formats.partition_record import encode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving import store_deadline
from tests.groups.controlled_metadata import Metadata
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until

PARTITION = keys.partition("topic", 0)


def batch(sequence: int, epoch: int = 1) -> bytes:
    return wire.batch([b"v"], producer_id=7, producer_epoch=epoch, sequence=sequence)


async def outcome(client: Client, records: bytes) -> int:
    return int((await client.produce("topic", 0, records)).error_code)


async def replace_leader(broker: InProcessBroker) -> None:
    """As another broker does, of which this one has not heard."""
    record = broker.partition("topic").record
    taken = encode_partition_record(replace(record, leader_epoch=record.leader_epoch + 1))
    await broker.metadata.transact([], [Put(PARTITION, taken)])


@pytest.mark.parametrize(
    ("records", "refusal"),
    [
        pytest.param(batch(5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="sequence"),
        pytest.param(batch(1, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH, id="epoch"),
    ],
)
async def test_only_a_leader_that_is_sure_of_it_refuses_for_good(records: bytes, refusal: ErrorCode) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, batch(0)) == ErrorCode.NONE
        assert await outcome(client, records) == refusal
        await replace_leader(broker)
        assert await outcome(client, records) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_while_the_store_is_away_the_client_is_to_try_again() -> None:
    metadata = Metadata()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, batch(0)) == ErrorCode.NONE
        metadata.is_away = True
        assert await outcome(client, batch(5)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata.is_away = False
        assert await outcome(client, batch(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_store_that_does_not_answer_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_deadline, "STORE_DEADLINE_SEC", 0.05)
    metadata = Metadata()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, batch(0)) == ErrorCode.NONE
        with metadata.hold("get", PARTITION):
            assert await outcome(client, batch(5)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_refusals_share_a_read_that_began_after_them() -> None:
    metadata = Metadata()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, batch(0)) == ErrorCode.NONE
        metadata.read.clear()
        with metadata.hold("get", PARTITION) as asking:
            await client.send_produce("topic", {0: batch(5)})
            await asking.until_reached()
            for _ in range(9):
                await client.send_produce("topic", {0: batch(6)})
            refusals = broker.process.serving.sequence_error_check
            await until(
                lambda: sum(map(len, refusals._questions._callbacks.values())) == 9, "the others wait"
            )
            await replace_leader(broker)
            asking.release()
            codes = [(await client.receive_produce())[1][0].error_code for _ in range(10)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10
        assert metadata.read.count(PARTITION) == 2
        assert not refusals._questions._callbacks


async def test_a_broker_that_stops_answers_those_that_wait() -> None:
    metadata = Metadata()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, batch(0)) == ErrorCode.NONE
        with metadata.hold("get", PARTITION) as asking:
            await client.send_produce("topic", {0: batch(5)})
            await asking.until_reached()
            refusals = broker.process.serving.sequence_error_check
            await asyncio.gather(refusals.close(), client.receive_produce())
            assert not refusals._questions._callbacks
