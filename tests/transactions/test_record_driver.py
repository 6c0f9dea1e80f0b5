"""Decisions are stored under a compare, whatever else writes the record and however the store answers."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.marker_record import decode_marker_record
from kafscale.formats.topic_record import encode_coordinator_record
from kafscale.formats.transaction_record import TransactionState, TransactionTopic
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import CoordinatorRecord
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import Compare, KeyValue, Operation, Put, TransactionResult
from kafscale.metadata.write_batch import Write
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.transactions import record_driver
from kafscale.transactions.decisions import Refuse, Remove, Reply
from kafscale.transactions.events import End, Expire, MarkersGone, MarkersStored, ProducerIdAndEpoch
from kafscale.transactions.record_driver import RecordDriver, StoredRecord
from kafscale.transactions.shard_owner import ShardOwner
from tests.sim.unreliable import Network, UnreliableMetadata
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually
from tests.transactions.stores import CountedIds, driver_over, marker_keys, put_record, read_record
from tests.transactions.values import EMPTY, NOW, ONGOING, ORDERS_ID, PRODUCER, add, end, init

ID = "copier-7"


class CountingStore(MemoryStore):
    """Counts reads, and lets something happen before a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.before: list[Put] = []

    async def get(self, key: str) -> KeyValue | None:
        self.reads += 1
        return await super().get(key)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        while self.before:
            await super().transact([], [self.before.pop()])
        return await super().transact(compares, operations)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


async def test_a_transaction_runs_from_first_producer_to_markers(store: CountingStore) -> None:
    driver = driver_over(store)
    begun = await driver.apply(ID, init(new_id=None))
    assert begun.result == Reply(ProducerIdAndEpoch(9000, 0))
    producer = ProducerIdAndEpoch(9000, 0)
    added = await driver.apply(ID, add(producer, groups=("billing",)), begun.after)
    decided = await driver.apply(ID, end(producer), added.after, coordinator_epoch=3)
    assert decided.result == Reply(ProducerIdAndEpoch(9000, 1))
    record = await read_record(store, ID)
    assert record == decided.after.record
    assert record is not None
    assert (record.state, record.markers_stored) == (TransactionState.PREPARE_COMMIT, True)
    assert await marker_keys(store) == [
        keys.partition_marker("orders", 0, 9000),
        keys.partition_marker("orders", 1, 9000),
        keys.group_marker("billing", 9000),
    ]
    found = await store.get(keys.partition_marker("orders", 1, 9000))
    assert found is not None
    marker = decode_marker_record(found.key, found.value)
    assert (marker.transactional_id, marker.commit, marker.topic_id) == (ID, True, ORDERS_ID)
    assert (marker.producer_epoch, marker.coordinator_epoch) == (1, 3)


async def test_what_is_remembered_spares_the_read(store: CountingStore) -> None:
    known = StoredRecord(EMPTY, await put_record(store, ID, EMPTY))
    await driver_over(store).apply(ID, add(), known)
    assert store.reads == 0


async def test_a_refusal_never_rests_on_what_is_remembered(store: CountingStore) -> None:
    known = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
    newer = replace(ONGOING, producer_epoch=PRODUCER.epoch + 1)
    await put_record(store, ID, newer)
    applied = await driver_over(store).apply(
        ID, add(ProducerIdAndEpoch(PRODUCER.producer_id, PRODUCER.epoch + 1)), known
    )
    assert applied.result == Reply()
    assert not applied.was_stored


async def test_an_answer_never_rests_on_what_is_remembered(store: CountingStore) -> None:
    known = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
    await put_record(store, ID, replace(ONGOING, state=TransactionState.PREPARE_ABORT))
    applied = await driver_over(store).apply(ID, add(), known)
    assert isinstance(applied.result, Refuse)
    assert applied.result.code is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_record_that_changes_meanwhile_is_decided_on_again(store: CountingStore) -> None:
    known = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
    timed_out = replace(
        ONGOING, state=TransactionState.PREPARE_ABORT, producer_epoch=6, last_producer_epoch=5
    )
    other = MemoryStore()
    await put_record(other, ID, timed_out)
    found = await other.get(keys.transaction(ID))
    assert found is not None
    store.before.append(Put(found.key, found.value))
    applied = await driver_over(store).apply(ID, end(commit=True), known)
    assert isinstance(applied.result, Refuse)
    assert applied.result.code is ErrorCode.INVALID_TXN_STATE
    assert await read_record(store, ID) == timed_out
    assert await marker_keys(store) == []


async def test_more_markers_than_fit_are_left_to_the_coordinator() -> None:
    store = MemoryStore(max_operations=4)
    topics = (TransactionTopic("orders", ORDERS_ID, (0, 1, 2, 3)),)
    known = StoredRecord(
        replace(ONGOING, topics=topics), await put_record(store, ID, replace(ONGOING, topics=topics))
    )
    applied = await driver_over(store).apply(ID, end(), known)
    assert applied.after.record is not None
    assert not applied.after.record.markers_stored
    assert await marker_keys(store) == []


async def test_an_expired_transactional_id_is_deleted_once(store: CountingStore) -> None:
    await put_record(store, ID, EMPTY)
    expire = Expire(now_ms=NOW, expiration_ms=0)
    assert (await driver_over(store).apply(ID, expire)).result == Remove()
    assert await read_record(store, ID) is None
    assert not (await driver_over(store).apply(ID, expire)).was_stored


async def test_a_store_that_is_away_is_coordinator_not_available(store: CountingStore) -> None:
    await store.close()
    with pytest.raises(KafkaError) as caught:
        await driver_over(store).apply(ID, init())
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_silent_store_is_coordinator_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(MemoryStore):
        async def get(self, key: str) -> KeyValue | None:
            await asyncio.Event().wait()
            raise StoreUnavailableError("never")

    monkeypatch.setattr(record_driver, "DEADLINE_SEC", 0.01)
    with pytest.raises(KafkaError) as caught:
        await driver_over(Silent()).apply(ID, init())
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_unreadable_record_is_coordinator_not_available(store: CountingStore) -> None:
    await store.transact([], [Put(keys.transaction(ID), b"\x00\x09nonsense")])
    with pytest.raises(KafkaError, match="format version 9") as caught:
        await driver_over(store).apply(ID, init())
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


class HistoryStore(MemoryStore):
    """Remembers every record that was stored, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[bytes] = []

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await super().transact(compares, operations)
        if result.succeeded:
            self.history += [
                one.value for one in operations if isinstance(one, Put) and one.key == keys.transaction(ID)
            ]
        return result


async def _contend(seed: int) -> None:
    """Two brokers add, and one ends, over a bad network; what was answered is in the history, once."""
    rng = random.Random(seed)
    store, network = HistoryStore(), Network(rng, fault_rate=0.3)
    unreliable = UnreliableMetadata(store, network)
    drivers = [RecordDriver(unreliable, SharedWrites(unreliable), CountedIds()) for _ in range(2)]  # type: ignore[arg-type]
    known = StoredRecord(EMPTY, await put_record(store, ID, EMPTY))
    store.history.clear()

    async def one(number: int) -> tuple[int, bool]:
        topics = (TransactionTopic("orders", ORDERS_ID, (number,)),)
        try:
            applied = await rng.choice(drivers).apply(ID, add(topics=topics), rng.choice((known, None)))
        except KafkaError as problem:
            assert problem.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            return number, False
        return number, applied.result == Reply()

    answers = await asyncio.gather(*(one(number) for number in range(6)))
    record = await read_record(store, ID)
    acknowledged = {number for number, added in answers if added}
    if acknowledged:
        assert record is not None
        assert acknowledged <= {index for _, index in record.partitions()}
    ended: End = end(commit=rng.random() < 0.5)
    results = await asyncio.gather(*(driver.apply(ID, ended) for driver in drivers), return_exceptions=True)
    network.heal()
    await network.settle()
    record = await read_record(store, ID)
    decided = [one for one in results if not isinstance(one, BaseException) and one.was_stored]
    assert len(set(store.history)) == len(store.history)
    if decided:
        assert record is not None
        assert record.producer_epoch == PRODUCER.epoch + 1
        assert (
            record.state
            is (TransactionState.PREPARE_COMMIT if ended.commit else TransactionState.PREPARE_ABORT)
            or not record.topics
        )
        expected = [keys.partition_marker(topic, index, 4000) for topic, index in record.partitions()]
        assert await marker_keys(store) == expected


@settings(max_examples=by_day(30, by_night=600), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_the_network_does_each_change_happens_once(seed: int) -> None:
    run_virtually(_contend(seed))


async def own(store: MemoryStore, broker_id: int) -> None:
    """The broker claims the shard."""
    record = CoordinatorRecord(broker_id=broker_id, coordinator_epoch=broker_id)
    await store.transact([], [Put(keys.coordinator(keys.shard_of(ID)), encode_coordinator_record(record))])


async def test_a_replaced_coordinator_ends_no_later_transaction(store: CountingStore) -> None:
    """TV1: a broker wakes up with an EndTxn that the client has sent to the next coordinator by then.

    Found by ten minutes of trouble: the next transaction has the same epoch, and was committed half way.
    """
    driver, owner = driver_over(store), ShardOwner(keys.shard_of(ID), broker_id=1)
    await own(store, 1)
    before = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
    await own(store, 2)
    later = replace(ONGOING, started_ms=ONGOING.started_ms + 1)
    await put_record(store, ID, later)
    late = end(PRODUCER, version=1)
    for known in (before, None):
        with pytest.raises(KafkaError) as refused:
            await driver.apply(ID, late, known, owner=owner)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert await read_record(store, ID) == later


async def test_a_coordinator_learns_its_claim_with_the_first_write(store: CountingStore) -> None:
    driver, owner = driver_over(store), ShardOwner(keys.shard_of(ID), broker_id=1)
    for _ in range(2):  # The second claim is one after a lost lease.
        await own(store, 1)
        before = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
        ended = await driver.apply(ID, end(PRODUCER, version=1), before, owner=owner)
        assert ended.was_stored
        assert await read_record(store, ID) == ended.after.record


async def test_a_shard_without_owner_ends_nothing_of_the_old_protocol(store: CountingStore) -> None:
    driver, owner = driver_over(store), ShardOwner(keys.shard_of(ID), broker_id=1)
    await put_record(store, ID, ONGOING)
    with pytest.raises(KafkaError) as refused:
        await driver.apply(ID, end(PRODUCER, version=1), owner=owner)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert await read_record(store, ID) == ONGOING


async def test_writes_of_one_owner_share_a_store_transaction() -> None:
    """Its key is compared once, and a write fails with it while others go on."""
    store = MemoryStore()
    shared = SharedWrites(store)
    owner = Put("coordinators/1", b"")
    revision = (await store.transact([], [owner])).revision
    current, stale = Compare(owner.key, revision), Compare(owner.key, revision - 1)

    def write(number: int, also: Compare | None) -> Write:
        own = Compare(f"transactions/1/{number}", 0)
        compares = (own,) if also is None else (own, also)
        return Write(compares, (Put(own.key, b""),))

    writes = [write(number, stale if number % 3 == 2 else current) for number in range(12)] + [
        write(12, None)
    ]
    results = await asyncio.gather(*(shared.write(one) for one in writes))
    assert [one.succeeded for one in results] == [number % 3 != 2 for number in range(12)] + [True]
    assert all(one.found[1] is not None for one in results if not one.succeeded)
    await shared.close()


@pytest.mark.parametrize("event", [MarkersGone(now_ms=NOW), MarkersStored()])
async def test_end_of_markers_of_one_transaction_does_not_end_the_next(
    store: CountingStore, event: MarkersGone | MarkersStored
) -> None:
    """A coordinator that was paused completes what it knew; meanwhile the next transaction was decided.

    Completed without its markers, a third one could begin, whose records the late markers would end.
    """
    decided = replace(
        ONGOING, state=TransactionState.PREPARE_ABORT, markers_stored=isinstance(event, MarkersGone)
    )
    known = StoredRecord(decided, await put_record(store, ID, decided))
    later = replace(decided, state=TransactionState.PREPARE_COMMIT, updated_ms=NOW + 5)
    await put_record(store, ID, later)
    applied = await driver_over(store).apply(ID, event, known, only_to_known=True)
    assert not applied.was_stored
    assert applied.after.record == await read_record(store, ID) == later


async def test_a_repeated_decision_is_not_made_on_a_later_transaction() -> None:
    """Its first attempt was stored and not answered; the client went on by itself, in the same epoch (TV1)."""

    class Lost(MemoryStore):
        lost = False

        async def transact(
            self, compares: Sequence[Compare], operations: Sequence[Operation]
        ) -> TransactionResult:
            result = await super().transact(compares, operations)
            if operations and not self.lost:
                self.lost = True
                await put_record(self, ID, next_one)
                raise StoreIndeterminateError("no answer")
            return result

    store = Lost()
    store.lost = True
    known = StoredRecord(ONGOING, await put_record(store, ID, ONGOING))
    store.lost = False
    next_one = replace(ONGOING, started_ms=NOW + 5, updated_ms=NOW + 5)
    with pytest.raises(KafkaError) as refused:
        await driver_over(store).apply(ID, end(version=1), known)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await read_record(store, ID) == next_one
