"""The coordinator's service: decisions are carried out, whoever coordinates, whatever is killed on the way."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from kafscale.formats.marker_record import decode_marker_record
from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Delete, MetadataStore, Put
from kafscale.ops.transaction_metrics import TransactionResult
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from kafscale.transactions.events import ProducerIdAndEpoch
from tests.support.virtual_time import run_virtually
from tests.transactions.running_services import (
    ID,
    SHARD,
    KillableStore,
    Running,
    claim,
    put_topic,
    running,
    write_markers,
    write_markers_forever,
)
from tests.transactions.stores import marker_keys, put_record, read_record
from tests.transactions.values import EMPTY, NOW, ONGOING, ORDERS_ID

TIMEOUT_MS = 20_000
LONG_SEC = 300.0
PARTITIONS = [("orders", index) for index in range(7)]

S = TransactionState


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test in virtual time."""

    def run() -> None:
        run_virtually(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait in virtual time, which passes at once."""
    async with asyncio.timeout(LONG_SEC):
        while not await condition():  # noqa: ASYNC110 - of a store
            await asyncio.sleep(0.1)


async def until_state(store: MetadataStore, state: TransactionState) -> TransactionRecord:
    async def is_there() -> bool:
        record = await read_record(store, ID)
        return record is not None and record.state is state

    await until(is_there)
    record = await read_record(store, ID)
    assert record is not None
    return record


async def until_coordinated(one: Running) -> None:
    """Wait until the broker answers for the transactional id."""

    async def answers() -> bool:
        try:
            one.coordinator.describe(ID)
        except KafkaError as refusal:
            return refusal.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return True

    await until(answers)


async def prepared(store: MetadataStore) -> None:
    await put_topic(store)
    await claim(store, broker_id=1, epoch=3)


async def begin(one: Running, partitions: list[tuple[str, int]] | None = None) -> ProducerIdAndEpoch:
    producer = await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
    await one.coordinator.add_partitions(ID, producer, partitions or PARTITIONS[:2])
    await one.coordinator.add_group(ID, producer, "billing")
    return producer


@virtually
async def test_a_transaction_is_complete_when_its_markers_are_written() -> None:
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one:
        producer = await begin(one)
        after = await one.coordinator.end(ID, producer, commit=True, transaction_version=2)
        assert after == (producer.producer_id, producer.epoch + 1)
        found = await store.get(keys.partition_marker("orders", 1, producer.producer_id))
        assert found is not None
        assert decode_marker_record(found.key, found.value).coordinator_epoch == 3
        with pytest.raises(KafkaError, match="CONCURRENT"):
            await one.coordinator.add_partitions(ID, after, PARTITIONS)
        assert len(await write_markers(store)) == 3
        record = await until_state(store, S.COMPLETE_COMMIT)
        assert (record.topics, record.groups) == ((), ())
        await one.coordinator.add_partitions(ID, after, PARTITIONS)
        assert +one.metrics.transactions.ended == Counter({TransactionResult.COMMITTED: 1})
        assert one.metrics.transactions.completion.total == 0.0
        assert sum(one.metrics.transactions.completion.counts) == 1


@virtually
async def test_transactions_follow_one_another_without_delay() -> None:
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one:
        leaders = asyncio.create_task(write_markers_forever(store))
        producer = await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        for number in range(30):
            for _ in range(50):
                try:
                    await one.coordinator.add_partitions(ID, producer, PARTITIONS[: number % 7 + 1])
                    break
                except KafkaError as refusal:
                    assert refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS
                    await asyncio.sleep(0.02)
            version = 1 + number % 2
            ended = await one.coordinator.end(
                ID, producer, commit=number % 3 > 0, transaction_version=version
            )
            producer = ended if version == 2 else producer
        await until_state(store, S.COMPLETE_COMMIT)
        leaders.cancel()


@virtually
async def test_a_transaction_of_many_partitions_takes_several_writes() -> None:
    store = MemoryStore(max_operations=3)
    await prepared(store)
    async with running(store) as one:
        producer = await begin(one, PARTITIONS)
        await one.coordinator.end(ID, producer, commit=False, transaction_version=1)

        async def are_there() -> bool:
            return len(await marker_keys(store)) == 8

        await until(are_there)
        await write_markers(store)
        await until_state(store, S.COMPLETE_ABORT)


@virtually
async def test_a_client_that_vanishes_is_timed_out() -> None:
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one:
        leaders = asyncio.create_task(write_markers_forever(store))
        producer = await begin(one)
        one.now_ms += TIMEOUT_MS + 1
        record = await until_state(store, S.COMPLETE_ABORT)
        assert record.producer_epoch == producer.epoch + 1
        assert +one.metrics.transactions.ended == Counter({TransactionResult.TIMED_OUT: 1})
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            await one.coordinator.add_partitions(ID, producer, PARTITIONS)
        leaders.cancel()


@virtually
async def test_a_new_client_fences_the_old_one() -> None:
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one:
        leaders = asyncio.create_task(write_markers_forever(store))
        old = await begin(one)
        with pytest.raises(KafkaError, match="CONCURRENT"):
            await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await until_state(store, S.COMPLETE_ABORT)
        new = await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        assert new == (old.producer_id, old.epoch + 2)
        for version in (1, 2):
            with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
                await one.coordinator.end(ID, old, commit=True, transaction_version=version)
        assert +one.metrics.transactions.ended == Counter({TransactionResult.FENCED: 1})
        leaders.cancel()


@virtually
async def test_an_unused_transactional_id_expires() -> None:
    store = MemoryStore()
    await prepared(store)
    settings = Settings(broker_id=1, transactional_id_expiration_ms=1000)
    async with running(store, settings=settings) as one:
        await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        one.now_ms += 1000
        async with asyncio.timeout(4 * 3600):
            while await read_record(store, ID) is not None:  # noqa: ASYNC110 - of a store
                await asyncio.sleep(60)
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            one.coordinator.describe(ID)


@virtually
async def test_partitions_of_a_deleted_topic_count_as_done() -> None:
    store = MemoryStore()
    await prepared(store)
    await put_topic(store, TopicRecord(name="kept", topic_id=ORDERS_ID.__class__(int=9), partition_count=1))
    async with running(store) as one:
        producer = await begin(one, [("orders", 0), ("orders", 1), ("kept", 0)])
        await one.coordinator.end(ID, producer, commit=True, transaction_version=1)
        await store.transact([], [Delete(keys.topic("orders"))])
        kept = [keys.partition_marker("kept", 0, producer.producer_id), keys.group_marker("billing", 9000)]

        async def are_gone() -> bool:
            return await marker_keys(store) == kept

        await until(are_gone)
        await write_markers(store)
        await until_state(store, S.COMPLETE_COMMIT)


@virtually
async def test_a_broker_answers_only_for_its_own_shards() -> None:
    store = MemoryStore()
    await put_topic(store)
    async with running(store) as one:
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await claim(store, broker_id=1, epoch=1)
        await until_coordinated(one)
        await begin(one)
        await claim(store, broker_id=2, epoch=2)

        async def is_replaced() -> bool:
            try:
                one.coordinator.describe(ID)
            except KafkaError as refusal:
                return refusal.code is ErrorCode.NOT_COORDINATOR
            return False

        await until(is_replaced)
        assert list(await one.coordinator.transactions()) == []


@virtually
async def test_one_bad_record_does_not_keep_the_others_from_service() -> None:
    logging.disable(logging.ERROR)  # It is reported, as it should be.
    try:
        store = MemoryStore()
        await prepared(store)
        bad = next(f"bad-{n}" for n in range(10_000) if keys.shard_of(f"bad-{n}") == SHARD)
        foreign = f"{keys.transactions(SHARD)}no/such/key"
        await store.transact([], [Put(keys.transaction(bad), b"\x00\x07"), Put(foreign, b"")])
        await put_record(store, ID, replace(EMPTY, producer_epoch=7))
        async with running(store) as one:
            assert one.coordinator.describe(ID).producer_epoch == 7
            await begin(one)
            with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                await one.coordinator.init_producer_id(bad, timeout_ms=TIMEOUT_MS, expected=None)
            assert [one_id for one_id, _ in await one.coordinator.transactions()] == [ID]
    finally:
        logging.disable(logging.NOTSET)


@virtually
async def test_what_other_brokers_add_is_known_to_the_coordinator() -> None:
    """A leader elsewhere begins a transaction of TV2; the coordinator times it out."""
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one, running(store, broker_id=2) as other:
        leaders = asyncio.create_task(write_markers_forever(store))
        producer = await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await other.service.participation.check(ID, *producer, partitions=PARTITIONS, adds=True)

        async def is_seen() -> bool:
            return one.coordinator.describe(ID).state is S.ONGOING

        await until(is_seen)
        one.now_ms += TIMEOUT_MS + 1
        await until_state(store, S.COMPLETE_ABORT)
        leaders.cancel()


@virtually
async def test_a_leader_whose_clock_is_behind_shortens_no_transaction() -> None:
    store = MemoryStore()
    await prepared(store)
    async with running(store) as one, running(store, broker_id=2) as other:
        other.now_ms -= 10 * TIMEOUT_MS
        producer = await one.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await other.service.participation.check(ID, *producer, partitions=PARTITIONS, adds=True)
        await asyncio.sleep(30)
        assert one.coordinator.describe(ID).state is S.ONGOING
        one.now_ms += TIMEOUT_MS + 1
        await until_state(store, S.PREPARE_ABORT)


@virtually
async def test_too_many_transactional_ids_are_refused() -> None:
    store = MemoryStore()
    await put_topic(store)
    for shard in range(keys.GROUP_SHARD_COUNT):
        await claim(store, 1, 1, shard)
    settings = Settings(broker_id=1, transactional_ids_max=64)
    async with running(store, settings=settings) as one:
        refused = 0
        for number in range(100):
            try:
                await one.coordinator.init_producer_id(f"id-{number}", timeout_ms=1, expected=None)
            except KafkaError as refusal:
                assert refusal.code is ErrorCode.POLICY_VIOLATION
                refused += 1
        assert 100 - refused == len(await one.coordinator.transactions()) <= 64


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_legal_is_refused(timeout_ms: int) -> None:
    async def run() -> None:
        store = MemoryStore()
        await prepared(store)
        async with running(store) as one:
            with pytest.raises(KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
                await one.coordinator.init_producer_id(ID, timeout_ms=timeout_ms, expected=None)

    run_virtually(run())


@pytest.mark.parametrize("transactional_id", ["", "x" * 4097])
def test_an_id_that_is_not_legal_is_refused(transactional_id: str) -> None:
    async def run() -> None:
        async with running(MemoryStore()) as one:
            with pytest.raises(KafkaError, match="INVALID_REQUEST"):
                await one.coordinator.add_group(transactional_id, ProducerIdAndEpoch(1, 0), "g")

    run_virtually(run())


async def _kill(kills_at: int, *, after: bool, commit: bool, max_operations: int) -> bool:
    """Kill the coordinator at a transaction of the store; its successor finishes. False if it lived to the end."""
    store = MemoryStore(max_operations=max_operations)
    await prepared(store)
    killable = KillableStore(store, kills_at, after=after)
    first = Running(cast(MetadataStore, killable), broker_id=1)
    await first.start()
    answered = asyncio.Event()

    async def client() -> None:
        producer = await begin(first, PARTITIONS[:5])
        await first.coordinator.end(ID, producer, commit=commit, transaction_version=2)
        answered.set()
        await until_state(store, S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)

    leaders = asyncio.create_task(write_markers_forever(store))
    working = asyncio.create_task(client())
    killed = asyncio.create_task(killable.killed.wait())
    await asyncio.wait((working, killed), return_when=asyncio.FIRST_COMPLETED)
    if not killed.done():
        killed.cancel()
        leaders.cancel()
        await first.close()
        return False
    working.cancel()
    decided = await read_record(store, ID)
    await claim(store, broker_id=2, epoch=4)
    async with running(store, broker_id=2) as second:
        await until_coordinated(second)
        second.now_ms += TIMEOUT_MS + 1
        if decided is not None:
            await _check_end(store, decided, is_answered=answered.is_set(), commit=commit)
        producer = await second.coordinator.init_producer_id(ID, timeout_ms=TIMEOUT_MS, expected=None)
        await second.coordinator.add_partitions(ID, producer, PARTITIONS)
    leaders.cancel()
    await first.close()
    return True


async def _check_end(
    store: MetadataStore, decided: TransactionRecord, *, is_answered: bool, commit: bool
) -> None:
    """A decision from before the kill stands; without one the transaction is timed out."""
    if decided.state is S.EMPTY:
        return
    was_committed = decided.state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    assert was_committed or not (is_answered and commit)
    await until_state(store, S.COMPLETE_COMMIT if was_committed else S.COMPLETE_ABORT)
    assert await marker_keys(store) == []


@pytest.mark.parametrize("max_operations", [128, 3])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_a_successor_finishes_what_was_killed_at_any_step(
    after: bool, commit: bool, max_operations: int
) -> None:
    steps = 0
    while run_virtually(_kill(steps + 1, after=after, commit=commit, max_operations=max_operations)):
        steps += 1
    assert steps >= (5 if max_operations > 3 else 8)


@virtually
async def test_a_decision_nobody_watched_is_completed() -> None:
    """All markers were written while nobody watched: only a read shows it."""
    store = MemoryStore()
    await put_topic(store)
    await put_record(store, ID, replace(ONGOING, state=S.PREPARE_COMMIT, markers_stored=True, updated_ms=NOW))
    async with running(store) as one:
        await claim(store, broker_id=1, epoch=9)
        await until_coordinated(one)
        await until_state(store, S.COMPLETE_COMMIT)
