"""A shard's writes: fenced, in order, batched, and never reported as done unless they are."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from kafscale.cluster.coordination import ClaimedShard, Coordination
from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.topic_record import decode_group_shard_record, encode_topic_record
from kafscale.groups.shard_writer import (
    MAX_TRANSACTION_BYTES,
    ConditionChangedError,
    ShardWriter,
    WriteInDoubtError,
)
from kafscale.groups.topic_condition import ConditionalPut, TopicCondition
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Compare, Delete, Operation, Put, TransactionResult
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore
from tests.support.owners import end_leases
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_SEC

TIMEOUT_SEC = PATIENCE_SEC
SHARD = 0


class Watched(MemoryStore):
    """Counts transactions, and lets a test hold them back or let them fail."""

    def __init__(self, *, max_operations: int = 8) -> None:
        super().__init__(max_operations=max_operations)
        self.batches: list[int] = []
        self.hold: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.fail: Callable[[], Exception | None] = lambda: None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if self.hold is not None:
            self.reached.set()
            await self.hold.wait()
        problem = self.fail()
        if problem is not None:
            raise problem
        self.batches.append(len(operations))
        return await super().transact(compares, operations)

    async def value(self, key: str) -> bytes | None:
        found = await self.get(key)
        return None if found is None else found.value


async def claim(store: MemoryStore, broker_id: int = 0) -> ClaimedShard:
    """Whoever coordinated the shard before has lost its lease and has not heard of it."""
    await end_leases(store, keys.COORDINATORS)
    lease = await store.grant_lease(60)
    (claimed,) = await Coordination(store, broker_id, lambda: lease).claim([SHARD])
    return claimed


async def writer_of(store: Any, claimed: ClaimedShard, fenced: list[int] | None = None) -> ShardWriter:
    return ShardWriter(
        store, claimed, lambda: None if fenced is None else fenced.append(1), retry_delay_sec=0.01
    )


async def test_what_was_written_is_there_when_the_call_returns() -> None:
    store = Watched()
    writer = await writer_of(store, await claim(store))
    await writer.write([Put("a", b"1"), Put("b", b"2")], TIMEOUT_SEC)
    assert (await store.value("a"), await store.value("b")) == (b"1", b"2")
    await writer.write([Delete("a"), Put("b", b"3")], TIMEOUT_SEC)
    assert (await store.value("a"), await store.value("b")) == (None, b"3")


async def test_writes_queued_behind_one_share_a_transaction() -> None:
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    store.batches.clear()
    store.hold = asyncio.Event()
    writes = [asyncio.create_task(writer.write([Put("first", b"v")], TIMEOUT_SEC))]
    await store.reached.wait()
    writes += [asyncio.create_task(writer.write([Put(f"k{n}", b"v")], TIMEOUT_SEC)) for n in range(100)]
    await asyncio.sleep(0)
    store.hold.set()
    await asyncio.gather(*writes)
    assert store.batches == [2, 101]


async def test_a_write_of_hundreds_takes_a_handful_of_transactions() -> None:
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    store.batches.clear()
    await writer.write([Put(f"k{number}", b"v") for number in range(500)], TIMEOUT_SEC)
    assert store.batches == [128, 128, 128, 120]


async def test_transactions_are_bounded_in_bytes() -> None:
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    store.batches.clear()
    size = MAX_TRANSACTION_BYTES // 3 - len("k0")
    await writer.write([Put(f"k{number}", bytes(size)) for number in range(7)], TIMEOUT_SEC)
    assert store.batches == [4, 4, 2]
    await writer.write([Put("large", bytes(2 * MAX_TRANSACTION_BYTES))], TIMEOUT_SEC)
    assert store.batches[3:] == [2]


async def test_the_later_of_two_writes_to_a_key_counts() -> None:
    store = Watched()
    writer = await writer_of(store, await claim(store))
    store.hold = asyncio.Event()
    values: list[Operation] = [Put("a", b"1"), Put("a", b"2"), Delete("a"), Put("a", b"4")]
    writes = [asyncio.create_task(writer.write([one], TIMEOUT_SEC)) for one in values]
    await asyncio.sleep(0)
    store.hold.set()
    await asyncio.gather(*writes)
    assert await store.value("a") == b"4"


async def test_fenced_coordinator_writes_nothing_and_is_notified() -> None:
    store = Watched()
    fenced: list[int] = []
    old = await writer_of(store, await claim(store, 1), fenced)
    await old.write([Put("a", b"old")], TIMEOUT_SEC)
    new = await writer_of(store, await claim(store, 2))
    for _ in range(2):
        with pytest.raises(KafkaError) as refusal:
            await old.write([Put("a", b"late")], TIMEOUT_SEC)
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert fenced == [1]
    assert await store.value("a") == b"old"
    await new.write([Put("a", b"new")], TIMEOUT_SEC)
    assert await store.value("a") == b"new"


async def test_all_that_wait_hear_that_the_coordinator_was_replaced() -> None:
    store = Watched(max_operations=2)
    writer = await writer_of(store, await claim(store, 1))
    store.hold = asyncio.Event()
    writes = [asyncio.create_task(writer.write([Put(f"k{n}", b"v")], TIMEOUT_SEC)) for n in range(3)]
    await store.reached.wait()
    held, store.hold = store.hold, None
    await claim(store, 2)
    held.set()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [getattr(one, "code", None) for one in outcomes] == [ErrorCode.NOT_COORDINATOR] * 3
    assert await store.value("k0") is None


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 5))
async def test_a_fault_at_any_call_delays_and_changes_nothing(call: int, fault: Fault) -> None:
    store = Watched()
    claimed = await claim(store)
    writer = await writer_of(FusedMetadataStore(store, Fuse(call, fault)), claimed)
    for number in range(3):
        await asyncio.wait_for(writer.write([Put("a", b"%d" % number), Put(f"k{number}", b"")], 10), 10)
        assert await store.value("a") == b"%d" % number
    assert (await store.range("k")).items[2].key == "k2"


async def test_a_late_attempt_cannot_undo_what_came_after_it() -> None:
    """The first attempt is lost in flight, the same is sent again, and the first arrives after the next write."""
    store = Watched()
    claimed = await claim(store)
    late: list[tuple[Sequence[Compare], Sequence[Operation]]] = []
    transact = store.transact

    async def lose_the_first(
        compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not late:
            late.append((compares, operations))
            raise StoreIndeterminateError("still in flight")
        return await transact(compares, operations)

    store.transact = lose_the_first  # type: ignore[method-assign]
    writer = await writer_of(store, claimed)
    await writer.write([Put("a", b"1")], TIMEOUT_SEC)
    await writer.write([Put("a", b"2")], TIMEOUT_SEC)
    assert not (await transact(*late[0])).succeeded
    assert await store.value("a") == b"2"


def test_timed_out_write_is_refused_and_unsent_parts_dropped() -> None:
    async def check() -> None:
        store = Watched(max_operations=2)
        writer = await writer_of(store, await claim(store))
        store.fail = lambda: StoreUnavailableError("away")
        under_way = asyncio.create_task(writer.write([Put("a", b"1")], 2.0))
        waiting = asyncio.create_task(writer.write([Put("b", b"1")], 3.0))
        for task in (under_way, waiting):
            with pytest.raises(KafkaError) as refusal:
                await task
            assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() == pytest.approx(3.0)
        store.fail = lambda: None
        await writer.write([Put("c", b"1")], TIMEOUT_SEC)
        assert await store.value("b") is None
        assert await store.value("c") == b"1"

    run_virtually(check())


async def test_an_empty_write_waits_for_those_before_it() -> None:
    store = Watched()
    writer = await writer_of(store, await claim(store))
    await writer.write([], TIMEOUT_SEC)
    store.hold = asyncio.Event()
    before = asyncio.create_task(writer.write([Put("a", b"1")], TIMEOUT_SEC))
    await asyncio.sleep(0)
    flush = asyncio.create_task(writer.write([], TIMEOUT_SEC))
    done, _ = await asyncio.wait({flush}, timeout=0.01)
    assert not done
    store.hold.set()
    await asyncio.gather(before, flush)


async def test_an_idle_writer_holds_no_task() -> None:
    store = Watched()
    writer = await writer_of(store, await claim(store))
    before = asyncio.all_tasks()
    await writer.write([Put("a", b"1")], TIMEOUT_SEC)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    await writer.close()


async def test_closing_does_not_report_writes_in_flight_as_done() -> None:
    store = Watched(max_operations=2)
    writer = await writer_of(store, await claim(store))
    store.hold = asyncio.Event()
    writes = [asyncio.create_task(writer.write([Put(f"k{n}", b"v")], TIMEOUT_SEC)) for n in range(2)]
    await asyncio.sleep(0)
    await writer.close()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [getattr(one, "code", None) for one in outcomes] == [ErrorCode.NOT_COORDINATOR] * 2


async def test_a_shard_record_that_cannot_be_read_gives_the_shard_up() -> None:
    store = Watched()
    fenced: list[int] = []
    writer = await writer_of(store, await claim(store), fenced)
    await store.transact([], [Put(keys.group_shard(SHARD), b"?")])
    with pytest.raises(KafkaError) as refusal:
        await writer.write([Put("a", b"1")], TIMEOUT_SEC)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert fenced == [1]


async def test_a_defect_in_a_transaction_gives_the_shard_up(caplog: pytest.LogCaptureFixture) -> None:
    store = Watched(max_operations=2)
    fenced: list[int] = []
    writer = await writer_of(store, await claim(store), fenced)
    store.fail = lambda: ValueError("a defect")
    writes = [asyncio.create_task(writer.write([Put(f"k{n}", b"v")], TIMEOUT_SEC)) for n in range(2)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [getattr(one, "code", None) for one in outcomes] == [ErrorCode.NOT_COORDINATOR] * 2
    assert fenced == [1]
    assert "a defect" in caplog.text


async def test_the_record_counts_the_transactions() -> None:
    store = Watched()
    claimed = await claim(store)
    writer = await writer_of(store, claimed)
    store.batches.clear()
    for _ in range(random.randrange(1, 5)):
        await writer.write([Put("a", b"1")], TIMEOUT_SEC)
    value = await store.value(keys.group_shard(SHARD))
    assert value is not None
    record = decode_group_shard_record("shard", value)
    assert record.coordinator_epoch == claimed.record.coordinator_epoch
    assert record.sequence == len(store.batches)


# Writes that depend on their topic

TOPIC_ID = UUID(int=1)


async def put_topic(store: MemoryStore, name: str, topic_id: UUID = TOPIC_ID) -> TopicCondition:
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=1)
    result = await MemoryStore.transact(store, [], [Put(keys.topic(name), encode_topic_record(record))])
    return TopicCondition(keys.topic(name), topic_id, result.revision)


async def test_a_write_for_a_topic_that_changed_otherwise_takes_effect() -> None:
    store = Watched()
    writer = await writer_of(store, await claim(store))
    condition = await put_topic(store, "t")
    await put_topic(store, "t")
    await writer.write([ConditionalPut(Put("a", b"1"), condition)], TIMEOUT_SEC)
    assert await store.value("a") == b"1"


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_write_for_a_topic_made_again_ends_and_others_go_on(is_gone: bool) -> None:
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    old, other = await put_topic(store, "t"), await put_topic(store, "u")
    if is_gone:
        await MemoryStore.transact(store, [], [Delete(keys.topic("t"))])
    else:
        await put_topic(store, "t", UUID(int=2))
    store.hold = asyncio.Event()
    writes = [
        writer.write([Put("before", b"1")], TIMEOUT_SEC),
        writer.write([Put("plain", b"1"), ConditionalPut(Put("a", b"1"), old)], TIMEOUT_SEC),
        writer.write([ConditionalPut(Put("b", b"1"), other), Put("c", b"1")], TIMEOUT_SEC),
    ]
    tasks = [asyncio.create_task(one) for one in writes]
    await store.reached.wait()
    await asyncio.sleep(0)
    store.hold.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in outcomes] == [int, ConditionChangedError, int]
    values = {key: await store.value(key) for key in ("before", "plain", "a", "b", "c")}
    assert values == {"before": b"1", "plain": b"1", "a": None, "b": b"1", "c": b"1"}
    await writer.write([Put("after", b"1")], TIMEOUT_SEC)
    assert await store.value("after") == b"1"


async def test_a_deletion_is_not_lost_to_a_later_write_that_ends() -> None:
    """They are not in one transaction: what replaces the deletion there may be taken out of it."""
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    old = await put_topic(store, "t")
    await writer.write([Put("a", b"0"), Put("other", b"0")], TIMEOUT_SEC)
    await put_topic(store, "t", UUID(int=2))
    store.hold = asyncio.Event()
    store.reached.clear()
    first = asyncio.create_task(writer.write([Put("other", b"1")], TIMEOUT_SEC))
    await store.reached.wait()
    deletion = asyncio.create_task(writer.write([Delete("a")], TIMEOUT_SEC))
    ending = asyncio.create_task(writer.write([ConditionalPut(Put("a", b"1"), old)], TIMEOUT_SEC))
    await asyncio.sleep(0)
    store.hold.set()
    await asyncio.gather(first, deletion)
    with pytest.raises(ConditionChangedError):
        await ending
    assert await store.value("a") is None


async def test_contradicting_conditions_go_one_after_the_other() -> None:
    store = Watched(max_operations=128)
    writer = await writer_of(store, await claim(store))
    old = await put_topic(store, "t")
    new = await put_topic(store, "t", UUID(int=2))
    outcomes = await asyncio.gather(
        writer.write([ConditionalPut(Put("a", b"old"), old)], TIMEOUT_SEC),
        writer.write([ConditionalPut(Put("a", b"new"), new)], TIMEOUT_SEC),
        return_exceptions=True,
    )
    assert [type(one) for one in outcomes] == [ConditionChangedError, int]
    assert await store.value("a") == b"new"


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 6))
async def test_a_fault_while_a_topic_changes_loses_no_write(call: int, fault: Fault) -> None:
    store = Watched()
    claimed = await claim(store)
    condition = await put_topic(store, "t")
    await put_topic(store, "t")
    writer = await writer_of(FusedMetadataStore(store, Fuse(call, fault)), claimed)
    for number in range(3):
        put = Put("a", b"%d" % number)
        await asyncio.wait_for(writer.write([ConditionalPut(put, condition)], 10), 10)
        assert await store.value("a") == b"%d" % number


def test_a_write_that_runs_out_of_time_says_how_much_is_durable() -> None:
    async def check() -> None:
        store = Watched(max_operations=4)
        writer = await writer_of(store, await claim(store))

        def fail() -> Exception | None:
            return StoreUnavailableError("away") if len(store.batches) > 4 else None

        store.batches.clear()
        store.fail = fail
        with pytest.raises(WriteInDoubtError) as refusal:
            await writer.write([Put(f"k{number:02}", b"") for number in range(30)], 2.0)
        assert refusal.value.durable_count == 15
        assert [item.key for item in (await store.range("k")).items] == [f"k{n:02}" for n in range(15)]

    run_virtually(check())
