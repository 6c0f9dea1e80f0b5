"""Leaders and group coordinators verify or extend a transaction, with the codes that Kafka gives them."""

import asyncio
from dataclasses import replace

import pytest

from kafscale.formats.transaction_record import TransactionRecord, TransactionState, TransactionTopic
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import KeyValue
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.transactions.awaited_ends import AwaitedEnds
from kafscale.transactions.participation import Participation
from tests.support.waiting import PATIENCE_SEC
from tests.transactions.stores import driver_over, put_record, read_record, view_with
from tests.transactions.values import EMPTY, NOW, ONGOING, ORDERS_ID, PRODUCER

ID = "copier-7"
IN_IT = [("orders", 1), ("orders", 0)]
NOT_IN_IT = [("orders", 2)]

ABORTING = replace(ONGOING, state=TransactionState.PREPARE_ABORT)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def participation(store: MemoryStore) -> Participation:
    return Participation(driver_over(store), view_with(), lambda: NOW, AwaitedEnds(lambda _: None, 0.05))


async def refusal(
    participation: Participation,
    partitions: list[tuple[str, int]],
    *,
    epoch: int = PRODUCER.epoch,
    producer_id: int = PRODUCER.producer_id,
    group_id: str | None = None,
    adds: bool = False,
    knows_abortable: bool = False,
) -> ErrorCode:
    try:
        await participation.check(
            ID,
            producer_id,
            epoch,
            partitions=partitions,
            group_id=group_id,
            adds=adds,
            knows_abortable=knows_abortable,
        )
    except KafkaError as problem:
        return problem.code
    return ErrorCode.NONE


async def test_what_is_in_the_transaction_is_verified(
    store: MemoryStore, participation: Participation
) -> None:
    await put_record(store, ID, ONGOING)
    assert await refusal(participation, IN_IT, group_id="billing") is ErrorCode.NONE
    assert await read_record(store, ID) == ONGOING


async def test_what_is_not_in_the_transaction_is_refused(
    store: MemoryStore, participation: Participation
) -> None:
    await put_record(store, ID, ONGOING)
    assert await refusal(participation, NOT_IN_IT) is ErrorCode.INVALID_TXN_STATE
    assert await refusal(participation, [], group_id="others") is ErrorCode.INVALID_TXN_STATE
    known = await refusal(participation, NOT_IN_IT, knows_abortable=True)
    assert known is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(
    ("record", "epoch", "producer_id", "code"),
    [
        (None, 5, 4000, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, 5, 4001, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, 4, 4000, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ABORTING, 4, 4000, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ABORTING, 5, 4000, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_other_producers_are_refused(
    store: MemoryStore,
    participation: Participation,
    adds: bool,
    record: TransactionRecord | None,
    epoch: int,
    producer_id: int,
    code: ErrorCode,
) -> None:
    if record is not None:
        await put_record(store, ID, record)
    assert await refusal(participation, IN_IT, epoch=epoch, producer_id=producer_id, adds=adds) is code


async def test_a_leader_begins_a_transaction_of_tv2(store: MemoryStore, participation: Participation) -> None:
    await put_record(store, ID, EMPTY)
    assert await refusal(participation, NOT_IN_IT, adds=True) is ErrorCode.NONE
    assert await refusal(participation, [], group_id="billing", adds=True) is ErrorCode.NONE
    record = await read_record(store, ID)
    assert record is not None
    assert (record.state, record.transaction_version, record.started_ms) == (TransactionState.ONGOING, 2, NOW)
    assert record.topics == (TransactionTopic("orders", ORDERS_ID, (2,)),)
    assert record.groups == ("billing",)


async def test_leaders_that_add_at_once_are_all_in_it(
    store: MemoryStore, participation: Participation
) -> None:
    await put_record(store, ID, EMPTY)
    codes = await asyncio.gather(
        *(refusal(participation, [("orders", index)], adds=True) for index in range(3))
    )
    assert codes == [ErrorCode.NONE] * 3
    record = await read_record(store, ID)
    assert record is not None
    assert list(record.partitions()) == [("orders", 0), ("orders", 1), ("orders", 2)]


async def test_an_addition_waits_a_moment_for_the_transaction_before() -> None:
    asked = asyncio.Event()

    class Observed(MemoryStore):
        async def get(self, key: str) -> KeyValue | None:
            asked.set()
            return await super().get(key)

    store = Observed()
    await put_record(store, ID, ABORTING)
    ends = AwaitedEnds(lambda _: None, PATIENCE_SEC)
    patient = Participation(driver_over(store), view_with(), lambda: NOW, ends)
    waiting = asyncio.create_task(refusal(patient, NOT_IN_IT, adds=True))
    await asked.wait()
    await put_record(store, ID, replace(EMPTY, state=TransactionState.COMPLETE_ABORT))
    assert await waiting is ErrorCode.NONE


@pytest.mark.parametrize("partitions", [[("others", 0)], [("orders", 3)], [("orders", -1)]])
async def test_a_partition_that_is_not_there_is_refused(
    store: MemoryStore, participation: Participation, partitions: list[tuple[str, int]]
) -> None:
    await put_record(store, ID, ONGOING)
    assert await refusal(participation, partitions) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_was_created_again_is_not_the_one_in_it(
    store: MemoryStore, participation: Participation
) -> None:
    other = TransactionTopic("orders", ORDERS_ID.__class__(int=1), (0, 1))
    await put_record(store, ID, replace(ONGOING, topics=(other,)))
    assert await refusal(participation, IN_IT) is ErrorCode.INVALID_TXN_STATE


async def test_a_store_that_is_away_is_coordinator_not_available(
    store: MemoryStore, participation: Participation
) -> None:
    await store.close()
    assert await refusal(participation, IN_IT) is ErrorCode.COORDINATOR_NOT_AVAILABLE
