"""Reads with a replica: it comes first, costs one wait when it is away, and never has the last word."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafscale.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.objects.replica_pauses import PausePolicy
from kafscale.objects.replica_reads import ReplicaPatience, ReplicaReads
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics, StoreReadMetrics
from tests.support.controlled_store import ControlledStore
from tests.support.outages import Outage, SwitchedObjectStore
from tests.support.virtual_time import run_virtually

MIB = 2**20
KEY = "n/t/0/segment-00000000000000000000.kfs"
AWAY = StoreUnavailableError("away")


class Stores:
    """A primary and a replica that hold the same object, and what reads from them."""

    def __init__(self, replica: SwitchedObjectStore, *, wait_sec: float) -> None:
        self.primary = ControlledStore()
        self.replica = replica
        self.metrics = Metrics()
        loop = asyncio.get_running_loop()
        self.reads = ReplicaReads(
            self.replica,
            self.primary,
            self.metrics,
            lambda: round(loop.time() * 1000),
            patience=ReplicaPatience(wait_sec=wait_sec, bytes_per_sec=MIB),
            pauses=PausePolicy(first_ms=1_000, last_ms=8_000),
            jitter=random.Random(1),
        )
        self._loop = loop

    @property
    def of_replica(self) -> StoreReadMetrics:
        return self.metrics.store_reads("replica")

    @property
    def of_primary(self) -> StoreReadMetrics:
        return self.metrics.store_reads("primary")

    def is_passed_over(self) -> bool:
        [read] = self.metrics.readings[metric_families.REPLICA_PASSED_OVER.name].values()
        return bool(read())

    async def seconds(self, call: Awaitable[object]) -> float:
        """How long the call takes."""
        started = self._loop.time()
        await call
        return round(self._loop.time() - started, 6)


@asynccontextmanager
async def stores(
    *,
    wait_sec: float = 1.0,
    body: bytes = b"0123456789",
    replica: type[SwitchedObjectStore] = SwitchedObjectStore,
) -> AsyncIterator[Stores]:
    made = Stores(replica(), wait_sec=wait_sec)
    await made.primary.inner.put_if_absent(KEY, [body])
    await made.replica.inner.put_if_absent(KEY, [body])
    yield made
    await made.reads.close()


Scenario = Callable[[], Coroutine[Any, Any, None]]


def virtually(scenario: Scenario) -> Callable[[], None]:
    """The test on a clock of its own: what it says of times is exact."""

    def run() -> None:
        run_virtually(scenario())

    run.__name__ = scenario.__name__
    return run


READS: dict[str, Callable[[ReplicaReads], Coroutine[Any, Any, bytes]]] = {
    "get": lambda reads: reads.get(KEY),
    "get_range": lambda reads: reads.get_range(KEY, 2, 5),
    "read_into": lambda reads: _read_into(reads, 2, 5),
}
EXPECTED = {"get": b"0123456789", "get_range": b"23456", "read_into": b"23456"}


async def _read_into(reads: ReplicaReads, start: int, length: int) -> bytes:
    memory = bytearray(b"?" * (length + 3))
    count = await reads.read_into(KEY, start, length, [memoryview(memory)[:2], memoryview(memory)[2:]])
    return bytes(memory[:count])


@pytest.mark.parametrize("method", sorted(READS))
async def test_the_replica_is_asked_first_and_alone(method: str) -> None:
    async with stores() as made:
        assert await READS[method](made.reads) == EXPECTED[method]
        assert made.replica.count(method) == 1
        assert not made.primary.calls
        assert (made.of_replica.reads, made.of_replica.bytes) == (1, len(EXPECTED[method]))
        assert made.of_primary.reads == 0


@pytest.mark.parametrize("method", sorted(READS))
async def test_object_missing_in_the_replica_comes_from_the_primary(method: str) -> None:
    async with stores() as made:
        await made.replica.inner.delete([KEY])
        for _ in range(3):
            assert await READS[method](made.reads) == EXPECTED[method]
        assert (made.of_replica.reads, made.of_replica.misses, made.of_replica.bytes) == (3, 3, 0)
        assert (made.of_primary.reads, made.of_primary.bytes) == (3, 3 * len(EXPECTED[method]))
        assert not made.is_passed_over()


async def test_what_neither_has_is_not_found() -> None:
    async with stores() as made:
        await made.replica.inner.delete([KEY])
        await made.primary.inner.delete([KEY])
        with pytest.raises(ObjectNotFoundError):
            await made.reads.get(KEY)
        assert made.of_replica.misses == made.of_primary.misses == 1


@pytest.mark.parametrize("method", sorted(READS))
@pytest.mark.parametrize("problem", [AWAY, StoreIndeterminateError("lost"), StoreRefusedError("403")])
async def test_what_fails_at_the_replica_comes_from_the_primary(method: str, problem: StoreError) -> None:
    async with stores() as made:
        made.replica.fail(method, "*", problem)
        assert await READS[method](made.reads) == EXPECTED[method]
        assert made.of_replica.errors == {type(problem).__name__: 1}
        assert made.of_primary.reads == 1
        assert made.is_passed_over()


async def test_the_primarys_failure_is_the_readers() -> None:
    async with stores() as made:
        await made.replica.inner.delete([KEY])
        made.primary.fail("get", "*", AWAY)
        with pytest.raises(StoreUnavailableError):
            await made.reads.get(KEY)
        assert made.of_primary.errors == {"StoreUnavailableError": 1}
        assert not made.is_passed_over()


@virtually
async def test_hanging_replica_costs_one_wait_for_many_reads() -> None:
    async with stores(wait_sec=1.0) as made:
        made.replica.switch.go_away(Outage.HANGS)

        async def twenty() -> None:
            for _ in range(20):
                assert await made.reads.get_range(KEY, 0, 4) == b"0123"

        assert await made.seconds(twenty()) == pytest.approx(1.0, abs=0.01)
        assert made.of_replica.errors == {"TimeoutError": 1}
        assert made.of_replica.passed_over == 19
        assert made.of_primary.reads == 20


@virtually
async def test_concurrent_reads_wait_together_for_hanging_replica() -> None:
    async with stores(wait_sec=1.0) as made:
        made.replica.switch.go_away(Outage.HANGS)
        took = await made.seconds(asyncio.gather(*(made.reads.get_range(KEY, 0, 4) for _ in range(20))))
        assert took == pytest.approx(1.0, abs=0.01)


@virtually
async def test_replica_that_stays_away_costs_no_wait_and_fewer_probes() -> None:
    async with stores(wait_sec=1.0) as made:
        made.replica.switch.go_away(Outage.HANGS)
        await made.reads.get(KEY)
        longest, asked = 0.0, []
        for _ in range(600):
            longest = max(longest, await made.seconds(made.reads.get(KEY)))
            asked.append(made.replica.count("get_range"))
            await asyncio.sleep(0.1)
        assert longest == 0.0
        # Of a minute: after pauses of about 1, 2, 4, 8, 8, 8 ... seconds and a second's wait each.
        assert 5 <= asked[-1] <= 10
        assert asked[100] >= 2


@virtually
async def test_a_replica_that_is_back_is_read_from_again() -> None:
    async with stores() as made:
        made.replica.switch.go_away(Outage.FAILS)
        await made.reads.get(KEY)
        made.replica.switch.come_back()
        await made.reads.get(KEY)
        assert made.is_passed_over()
        await asyncio.sleep(2)
        await made.reads.get(KEY)  # the one that it is asked with, aside
        assert made.of_replica.reads == 1
        await asyncio.sleep(0.1)
        assert not made.is_passed_over()
        await made.reads.get(KEY)
        assert (made.of_replica.reads, made.of_replica.passed_over, made.of_primary.reads) == (2, 2, 3)


@virtually
async def test_a_replica_that_answers_without_the_object_is_back() -> None:
    async with stores() as made:
        made.replica.fail("get", "*", AWAY)
        await made.reads.get(KEY)
        await made.replica.inner.delete([KEY])
        await asyncio.sleep(2)
        await made.reads.get(KEY)
        await asyncio.sleep(0.1)
        assert not made.is_passed_over()


@virtually
async def test_a_read_waits_for_the_replica_as_long_as_its_bytes_take() -> None:
    async with stores(wait_sec=1.0, body=bytes(4 * MIB)) as made:
        with made.replica.hold("read_into") as hold:
            reading = asyncio.create_task(_read_into(made.reads, 0, 4 * MIB))
            await hold.reached()
            await asyncio.sleep(4.9)
            hold.release()
            assert len(await reading) == 4 * MIB
        assert made.of_replica.bytes == 4 * MIB
        made.replica.switch.go_away(Outage.HANGS)
        assert await made.seconds(_read_into(made.reads, 0, 4 * MIB)) == pytest.approx(5.0, abs=0.01)


class HangsAtTheThirdPiece(SwitchedObjectStore):
    async def _called(self, method: str, key: str) -> None:
        if method == "read_into" and self.count("read_into") == 2:
            self.switch.go_away(Outage.HANGS)
        await super()._called(method, key)


@virtually
async def test_long_read_that_hangs_in_its_middle_waits_for_a_piece() -> None:
    body = random.Random(1).randbytes(40 * MIB)
    async with stores(wait_sec=1.0, body=body, replica=HangsAtTheThirdPiece) as made:
        memory = bytearray(40 * MIB)
        targets = [memoryview(memory)[: 3 * MIB], memoryview(memory)[3 * MIB :]]
        took = await made.seconds(made.reads.read_into(KEY, 0, 40 * MIB, targets))
        assert took == pytest.approx(1 + 8, abs=0.01)
        assert memory == body


async def test_a_long_read_ends_where_the_object_ends() -> None:
    body = random.Random(2).randbytes(20 * MIB + 5)
    async with stores(body=body) as made:
        memory = bytearray(30 * MIB)
        assert await made.reads.read_into(KEY, 3, 30 * MIB, [memoryview(memory)]) == len(body) - 3
        assert memory[: len(body) - 3] == body[3:]
        assert not made.primary.calls
        assert await made.reads.read_into(KEY, 0, 0, [memoryview(memory)]) == 0


class WritesLate(SwitchedObjectStore):
    """Goes on writing to the targets for a moment after it was cancelled, as a store with threads does."""

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        try:
            return await super().read_into(key, start, length, targets)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            for target in targets:
                target[:] = b"!" * len(target)
            raise


@virtually
async def test_replica_writes_nothing_once_the_primary_is_read() -> None:
    async with stores(replica=WritesLate) as made:
        made.replica.switch.go_away(Outage.HANGS)
        assert await _read_into(made.reads, 0, 10) == b"0123456789"
        made.primary.calls.clear()
        await asyncio.sleep(2)
        memory = bytearray(10)
        assert await made.reads.read_into(KEY, 0, 10, [memoryview(memory)]) == 10
        await asyncio.sleep(2)
        assert memory == b"0123456789"


@virtually
async def test_a_reader_that_gives_up_says_nothing_of_the_replica() -> None:
    async with stores() as made:
        with made.replica.hold("get") as hold:
            reading = asyncio.create_task(made.reads.get(KEY))
            await hold.reached()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert not made.is_passed_over()
        assert not made.primary.calls
        assert not made.of_replica.errors


@virtually
async def test_closing_ends_the_question_in_flight() -> None:
    async with stores() as made:
        made.replica.switch.go_away(Outage.HANGS)
        await made.reads.get(KEY)
        await asyncio.sleep(2)
        await made.reads.get(KEY)
        await asyncio.sleep(0.01)
        assert made.replica.count("get_range") == 1
        assert await made.seconds(made.reads.close()) == 0.0
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
