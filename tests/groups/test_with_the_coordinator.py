"""Groups with the transactions' coordinator itself: from InitProducerId to what consumers see."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kafscale.formats.transaction_record import TransactionState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.transactions.events import ProducerIdAndEpoch
from tests.groups.coordination import GROUP, Brokers, Coordinating, refused, scenario
from tests.groups.test_transactional_commits import places
from tests.groups.transactions import until_gone
from tests.transactions.running_services import ID, Running, put_topic, running
from tests.transactions.stores import read_record

TIMEOUT_MS = 10_000


@asynccontextmanager
async def both(brokers: Brokers) -> AsyncIterator[tuple[Coordinating, Running]]:
    """One broker that coordinates groups and transactional ids."""
    await put_topic(brokers.store)
    broker = await brokers.start()
    broker.marker_watch.start()
    async with running(brokers.store, 0) as transactions:
        broker.transactions.real = transactions.service.participation
        yield broker, transactions


async def commit(broker: Coordinating, producer: ProducerIdAndEpoch, offset: int, *, adds: bool) -> ErrorCode:
    return await broker.commit_in_transaction(
        GROUP,
        {0: offset},
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        adds=adds,
        transactional_id=ID,
    )


async def complete(brokers: Brokers, state: TransactionState) -> None:
    """Wait until the transaction is."""
    async with asyncio.timeout(60):
        while True:
            record = await read_record(brokers.store, ID)
            if record is not None and record.state is state:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("version", [1, 2])
@scenario()
async def test_transactions_one_after_the_other(brokers: Brokers, version: int) -> None:
    async with both(brokers) as (broker, transactions):
        coordinator = transactions.coordinator
        producer = await coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        visible: dict[int, int] = {}
        for offset, commits in enumerate((True, False, True, True), 1):
            if version == 1:
                await coordinator.add_group(ID, producer, GROUP)
            assert await commit(broker, producer, offset, adds=version == 2) is ErrorCode.NONE
            assert await broker.unstable(GROUP) == {0}
            ended = await coordinator.end(ID, producer, commit=commits, transaction_version=version)
            state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
            await complete(brokers, state)
            producer = ended if version == 2 else producer
            visible = {0: offset} if commits else visible
            assert await broker.fetch(GROUP) == places(visible)
            assert await broker.unstable(GROUP) == set()
        assert await brokers.store.keys_of_transactions() == []


@scenario()
async def test_group_that_is_not_in_the_transaction(brokers: Brokers) -> None:
    async with both(brokers) as (broker, transactions):
        producer = await transactions.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        with pytest.raises(KafkaError) as refusal:
            await commit(broker, producer, 1, adds=False)
        assert refusal.value.code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
        await transactions.coordinator.add_group(ID, producer, "another")
        with refused(ErrorCode.TRANSACTION_ABORTABLE):
            await commit(broker, producer, 1, adds=False)
        assert await brokers.store.keys_of_transactions() == []


@scenario()
async def test_late_commit_does_not_join_a_transaction_that_ended(brokers: Brokers) -> None:
    async with both(brokers) as (broker, transactions):
        coordinator = transactions.coordinator
        producer = await coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await commit(broker, producer, 1, adds=True)
        after = await coordinator.end(ID, producer, commit=True, transaction_version=2)
        await complete(brokers, TransactionState.COMPLETE_COMMIT)
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            await commit(broker, producer, 2, adds=True)
        assert await commit(broker, after, 3, adds=True) is ErrorCode.NONE
        assert await broker.fetch(GROUP) == places({0: 1})


@scenario()
async def test_fenced_producers_offsets_are_dropped(brokers: Brokers) -> None:
    async with both(brokers) as (broker, transactions):
        coordinator = transactions.coordinator
        old = await coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await commit(broker, old, 1, adds=True)
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            await coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await complete(brokers, TransactionState.COMPLETE_ABORT)
        new = await coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            await commit(broker, old, 2, adds=True)
        assert await commit(broker, new, 3, adds=True) is ErrorCode.NONE
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            await commit(broker, old, 4, adds=True)
        assert await broker.fetch(GROUP) == {}


@scenario()
async def test_transaction_that_times_out_is_dropped(brokers: Brokers) -> None:
    async with both(brokers) as (broker, transactions):
        producer = await transactions.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await commit(broker, producer, 1, adds=True)
        transactions.now_ms += TIMEOUT_MS + 1
        await complete(brokers, TransactionState.COMPLETE_ABORT)
        await until_gone(brokers.store, "pending-offsets/")
        assert await broker.unstable(GROUP) == set()
        assert await broker.fetch(GROUP) == {}
