"""The share partitions of a broker, over a real store: opened once, gone on with, given up when another leads."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Delete, MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.share_metrics import ShareMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType
from kafscale.share.partition.acquiring import Acquired, LogBatch, Wanted
from kafscale.share.partition.share_partition import ShareLimits
from kafscale.share.share_partitions import LogListener, SharedLog, SharePartitions, SharePolicy
from kafscale.share.state.opened import Led
from kafscale.share.state.operations import alter
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.writer import ShareStateWriter
from tests.share.state.partitions import CHANGE, GROUP, TOPIC, apply, elect, initialized, partition
from tests.support.waiting import wait_until_async

ORDERS_0 = partition(0)
LIMITS = ShareLimits()
BATCHES = [LogBatch(0, 9), LogBatch(10, 19)]


@dataclass(slots=True, eq=False)
class FakeLog:
    """A partition whose leader is this broker."""

    led: Led | None
    topic: str = TOPIC
    leader_epoch: int = 1
    log_start_offset: int = 0
    listeners: list[LogListener] = field(default_factory=list)

    def listen(self, listener: LogListener) -> None:
        self.listeners.append(listener)

    def forget(self, listener: LogListener) -> None:
        self.listeners.remove(listener)


@dataclass(slots=True)
class Shared:
    """A broker's share partitions, and what they stand on. `asked`: how often a group's first offset was."""

    store: MetadataStore
    partitions: SharePartitions
    starts: ShareStarts
    asked: list[str]
    metrics: ShareMetrics
    first_offset: int = 0
    limits: ShareLimits = LIMITS

    async def log(self) -> FakeLog:
        return FakeLog(await elect(self.store, 0))

    async def refusal(self, log: SharedLog) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            await self.partitions.get(ORDERS_0, log)
        return refused.value.code


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    store = MemoryStore()
    writer = ShareStateWriter(store, retry_delay_sec=0.01)
    failures = ItemFailures(next(iter(BackgroundWork)))
    starts = ShareStarts(store, failures)
    asked: list[str] = []
    metrics = ShareMetrics()
    loop = asyncio.get_running_loop()

    async def first_offset(group_id: str, log: SharedLog) -> int:
        asked.append(group_id)
        return made.first_offset

    partitions = SharePartitions(
        writer,
        starts,
        lambda _: SharePolicy(made.limits),
        first_offset,
        lambda: int(loop.time() * 1000),
        failures,
        metrics,
    )
    made = Shared(store, partitions, starts, asked, metrics)
    starts.start()
    await starts.shown()
    yield made
    await partitions.close()
    await starts.close()
    await writer.close()
    await store.close()


def take(led: LedSharePartition, member: str = "a") -> list[Acquired]:
    read_from = led.begin_read()
    assert read_from is not None
    read = [one for one in BATCHES if one.last >= read_from]
    return led.end_read(Wanted(member, 10, 500), read_from, read)


async def accept(led: LedSharePartition, first: int, last: int, member: str = "a") -> None:
    await led.acknowledge(member, [AcknowledgedBatch(first, last, [AcknowledgeType.ACCEPT])])


async def test_it_is_opened_once_for_all_who_ask(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    log = await shared.log()
    one, other = await asyncio.gather(
        shared.partitions.get(ORDERS_0, log), shared.partitions.get(ORDERS_0, log)
    )
    assert one is other is shared.partitions.find(ORDERS_0)
    assert shared.asked == [GROUP]
    assert len(log.listeners) == 1


async def test_the_first_offset_is_durable_before_anything_is_given(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    shared.first_offset = 10
    await shared.partitions.get(ORDERS_0, await shared.log())
    shared.first_offset = 20  # "latest" is another offset by now
    led = await shared.partitions.get(ORDERS_0, await shared.log())
    assert led.machine.start_offset == 10
    assert shared.asked == [GROUP]


async def test_the_next_leader_goes_on(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    before = await shared.partitions.get(ORDERS_0, await shared.log())
    take(before)
    await accept(before, 0, 4)
    after = await shared.partitions.get(ORDERS_0, await shared.log())
    assert after is not before
    assert take(after, "b") == [Acquired(5, 9, 2), Acquired(10, 19, 1)]
    with pytest.raises(KafkaError) as refused:
        await accept(before, 5, 9)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_does_not_know_of_the_next_writes_nothing(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    log = await shared.log()
    led = await shared.partitions.get(ORDERS_0, log)
    take(led)
    await elect(shared.store, 0)  # another broker
    with pytest.raises(KafkaError) as refused:
        await accept(led, 0, 9)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shared.partitions.find(ORDERS_0) is None
    assert log.listeners == []
    assert await shared.refusal(log) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_is_not_led_or_not_shared_is_refused(shared: Shared) -> None:
    assert await shared.refusal(FakeLog(None)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await shared.refusal(await shared.log()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(shared.partitions) == 0


async def test_a_partition_that_is_closed_is_given_up(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    log = await shared.log()
    led = await shared.partitions.get(ORDERS_0, log)
    log.listeners[0].closed()
    assert shared.partitions.find(ORDERS_0) is None
    with pytest.raises(KafkaError):
        led.begin_read()


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_altered_offsets_are_heard_of(shared: Shared, is_deleted: bool) -> None:
    await initialized(shared.store, ORDERS_0)
    led = await shared.partitions.get(ORDERS_0, await shared.log())
    take(led)
    if is_deleted:
        await shared.store.transact([], [Delete(keys.share_start(ORDERS_0))])
    else:
        known = {ORDERS_0: shared.starts.of_group(GROUP)[ORDERS_0].record}
        await apply(shared.store, alter({ORDERS_0: 7}, known, CHANGE).operations)

    async def is_lost() -> bool:
        return shared.partitions.find(ORDERS_0) is None

    await wait_until_async(is_lost, "the watch")
    with pytest.raises(KafkaError) as refused:
        await accept(led, 0, 9)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not is_deleted:
        again = await shared.partitions.get(ORDERS_0, await shared.log())
        assert again.machine.start_offset == 7


async def test_deleted_records_are_not_waited_for(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    log = await shared.log()
    led = await shared.partitions.get(ORDERS_0, log)
    log.log_start_offset = 12
    assert await shared.partitions.get(ORDERS_0, log) is led
    assert led.begin_read() == 12


async def test_changed_limits_hold_from_the_next_fetch_on(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    log = await shared.log()
    led = await shared.partitions.get(ORDERS_0, log)
    shared.limits = ShareLimits(lock_duration_ms=7_000)
    assert await shared.partitions.get(ORDERS_0, log) is led
    assert led.machine.limits.lock_duration_ms == 7_000


async def test_counts_outlive_the_partition_and_go_with_the_group(shared: Shared) -> None:
    await initialized(shared.store, ORDERS_0)
    before = await shared.partitions.get(ORDERS_0, await shared.log())
    take(before)
    await accept(before, 0, 4)
    after = await shared.partitions.get(ORDERS_0, await shared.log())
    take(after, "b")
    assert after is not before
    counts = shared.metrics.groups[GROUP]
    assert (counts.acquired, counts.accepted) == (10 + 15, 5)
    await shared.store.transact([], [Delete(keys.share_start(ORDERS_0))])

    async def is_forgotten() -> bool:
        return not shared.metrics.groups

    await wait_until_async(is_forgotten, "the watch")
