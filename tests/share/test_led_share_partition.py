"""The driver of a share partition: an answer comes after its write, locks end in time, and who is fenced says so."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType
from kafscale.share.partition.acquiring import Acquired, LogBatch, Wanted
from kafscale.share.partition.runs import RecordState, Run
from kafscale.share.partition.share_partition import DurableState, ShareLimits, SharePartition
from tests.support.waiting import wait_until_async

LOG = [LogBatch(0, 9), LogBatch(10, 19)]
NOT_LEADER = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")


async def until(condition: Callable[[], bool], what: str) -> None:
    async def asked() -> bool:
        return condition()

    await wait_until_async(asked, what)


@dataclass(slots=True)
class SlowWriter:
    """A store that waits to be allowed. `outcome`: with which the writes end."""

    written: list[DurableState] = field(default_factory=list)
    begun: list[DurableState] = field(default_factory=list)
    allowed: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    outcome: Exception | None = None

    async def write(self, state: DurableState) -> None:
        self.begun.append(state)
        await self.allowed.acquire()
        if self.outcome is not None:
            raise self.outcome
        self.written.append(state)


@dataclass(eq=False, slots=True)
class Waiter:
    """Counts what it is notified of."""

    notices: int = 0

    def available(self) -> None:
        self.notices += 1


@dataclass(slots=True)
class Setting:
    """A led share partition, with what it stands between. `lost`: how often it says so."""

    led: LedSharePartition
    writer: SlowWriter
    lost: list[None]

    def take(self, member: str = "a") -> list[Acquired]:
        read_from = self.led.begin_read()
        if read_from is None:
            return []
        return self.led.end_read(
            Wanted(member, 10, 500), read_from, [one for one in LOG if one.last >= read_from]
        )

    def say(self, first: int, last: int, kind: AcknowledgeType) -> "asyncio.Task[None]":
        return asyncio.create_task(self.led.acknowledge("a", [AcknowledgedBatch(first, last, [kind])]))


@pytest.fixture
def opened() -> Callable[..., Setting]:
    def make(lock_duration_ms: int = 60_000) -> Setting:
        writer, lost = SlowWriter(), list[None]()
        machine = SharePartition.of(DurableState(0), ShareLimits(lock_duration_ms))
        loop = asyncio.get_running_loop()
        led = LedSharePartition(
            "group orders-0", machine, writer, lambda: int(loop.time() * 1000), lambda: lost.append(None)
        )
        return Setting(led, writer, lost)

    return make


async def test_an_answer_comes_after_its_write(opened: Callable[..., Setting]) -> None:
    at = opened()
    assert at.take() == [Acquired(0, 9, 1)]
    assert at.writer.begun == [], "an acquisition is not stored"
    first = at.say(0, 1, AcknowledgeType.ACCEPT)
    await until(lambda: len(at.writer.begun) == 1, "a write")
    second, third = at.say(2, 3, AcknowledgeType.ACCEPT), at.say(4, 5, AcknowledgeType.REJECT)
    await asyncio.sleep(0)
    assert not first.done()
    at.writer.allowed.release()
    await first
    assert not second.done()
    at.writer.allowed.release()
    await asyncio.gather(second, third)
    # What came during the first write went into one.
    assert [state.start_offset for state in at.writer.written] == [2, 6]


async def test_a_lock_ends_in_time_and_its_end_is_stored(opened: Callable[..., Setting]) -> None:
    at, waiter = opened(lock_duration_ms=50), Waiter()
    at.writer.allowed = asyncio.Semaphore(1_000)
    at.take()
    at.led.listen(waiter)
    await until(lambda: waiter.notices > 0 and len(at.writer.written) > 0, "the end of the lock")
    assert at.writer.written[-1].runs == (Run(0, 9, RecordState.AVAILABLE, 1),)
    assert at.take("b") == [Acquired(0, 9, 2)]
    at.led.stop()


async def test_only_one_fetch_reads_at_a_time(opened: Callable[..., Setting]) -> None:
    at = opened()
    assert at.led.begin_read() == 0
    assert at.led.begin_read() is None
    at.led.give_up_read()
    assert at.led.begin_read() == 0
    at.led.stop()


async def test_released_records_are_announced(opened: Callable[..., Setting]) -> None:
    at, waiter, forgotten = opened(), Waiter(), Waiter()
    at.writer.allowed = asyncio.Semaphore(1_000)
    at.take()
    at.led.listen(waiter)
    at.led.listen(forgotten)
    at.led.forget(forgotten)
    await at.led.release("a")
    assert waiter.notices > 0
    assert forgotten.notices == 0
    await at.led.release("a")
    assert len(at.writer.written) == 1, "nothing was left to release"
    at.led.stop()


async def test_count_does_not_shrink_if_a_release_is_not_stored(opened: Callable[..., Setting]) -> None:
    """Another member had delivery 2 while the store was away; after the fail-over a third one had it, too."""
    at, waiter = opened(), Waiter()
    at.take("a")
    at.led.listen(waiter)
    release = asyncio.create_task(at.led.release("a"))
    await until(lambda: len(at.writer.begun) == 1, "a write")
    assert at.take("b") == [Acquired(10, 19, 1)], "new records are given, those that came back are not yet"
    assert at.take("b") == []
    before = waiter.notices
    at.writer.allowed.release()
    await release
    assert waiter.notices > before
    assert at.take("c") == [Acquired(0, 9, 2)]
    at.led.stop()


@pytest.mark.parametrize("outcome", [NOT_LEADER, RuntimeError("a defect")])
async def test_who_is_fenced_answers_all_and_does_no_more(
    opened: Callable[..., Setting], outcome: Exception
) -> None:
    at, waiter = opened(), Waiter()
    at.take()
    at.led.listen(waiter)
    saying = [at.say(0, 1, AcknowledgeType.ACCEPT), at.say(2, 3, AcknowledgeType.ACCEPT)]
    await until(lambda: len(at.writer.begun) == 1, "a write")
    at.writer.outcome = outcome
    at.writer.allowed.release()
    results = await asyncio.gather(*saying, return_exceptions=True)
    assert all(isinstance(one, KafkaError) for one in results), results
    assert at.lost == [None]
    assert waiter.notices > 0
    for use in (at.led.begin_read, lambda: at.led.listen(waiter)):
        with pytest.raises(KafkaError):
            use()
    with pytest.raises(KafkaError):
        await at.led.acknowledge("a", [])
    at.led.lose(NOT_LEADER)
    assert at.lost == [None]


async def test_deleted_records_are_stored_as_finished(opened: Callable[..., Setting]) -> None:
    at = opened()
    at.writer.allowed = asyncio.Semaphore(1_000)
    at.led.log_starts_at(15)
    await until(lambda: at.writer.written == [DurableState(15)], "a write")
    at.led.log_starts_at(15)
    assert at.led.begin_read() == 15
    at.led.stop()
