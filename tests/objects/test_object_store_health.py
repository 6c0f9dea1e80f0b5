"""The object store's health in virtual time: what its calls tell it, and when it asks the store itself."""

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass

import pytest

from kafscale.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.formats.object_keys import health_key
from kafscale.objects.health import (
    MAX_PROBES,
    ObjectStoreHealth,
    ObjectStoreProbe,
    health_policy,
)
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.objects.object_store import ObjectInfo
from kafscale.ops import metric_families
from kafscale.ops.metric_export import render
from kafscale.ops.metrics import Metrics, ProbeOutcome
from kafscale.ops.store_health import HealthPolicy, StoreState
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import Settings
from tests.support.controlled_store import ControlledStore
from tests.support.virtual_time import run_virtually

HEALTHY, DEGRADED, UNAVAILABLE = StoreState
POLICY = HealthPolicy(window_ms=30_000, warn_ms=1_000, crit_ms=10_000, warn_share=0.1, crit_share=0.5)
KEY = health_key("default", 7)


class Backend(ControlledStore):
    """A store that can be away, slow, and closed to writers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.takes_writes = True
        self.latency_sec = 0.001

    async def _called(self, method: str, key: str) -> None:
        await super()._called(method, key)
        await asyncio.sleep(self.latency_sec)
        if self.is_away or (method.startswith("put") and not self.takes_writes):
            raise StoreUnavailableError("the store is away")

    async def list(self, prefix: str) -> AsyncGenerator[ObjectInfo, None]:
        await self._called("list", prefix)
        async for info in super().list(prefix):
            yield info


@dataclass(kw_only=True)
class Watched:
    """A store with its health, and a probe that runs."""

    backend: Backend
    store: MeasuredObjectStore
    health: ObjectStoreHealth
    metrics: Metrics

    async def put(self, key: str = "key") -> None:
        """A call of a client's, whatever happens to it."""
        with contextlib.suppress(StoreUnavailableError):
            await self.store.put(key, [b"x"])

    async def get(self, key: str = "key") -> None:
        with contextlib.suppress(StoreUnavailableError, ObjectNotFoundError):
            await self.store.get(key)

    async def until(self, condition: Callable[[], bool], within_sec: float) -> float:
        """How long it takes until the condition holds."""
        began_sec = asyncio.get_running_loop().time()
        while not condition():
            took_sec = asyncio.get_running_loop().time() - began_sec
            assert took_sec <= within_sec, f"not within {within_sec} s"
            await asyncio.sleep(0.01)
        return asyncio.get_running_loop().time() - began_sec


def probes_under_way() -> int:
    return sum(task.get_name() == "object store probe" for task in asyncio.all_tasks())


def loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


@contextlib.asynccontextmanager
async def watched(policy: HealthPolicy = POLICY) -> AsyncIterator[Watched]:
    backend, metrics = Backend(), Metrics()
    health = ObjectStoreHealth(policy, loop_ms)
    store = MeasuredObjectStore(backend, metrics, health)
    probe = ObjectStoreProbe(
        store, health, metrics, keys=[health_key("default", 7)], broker_id=7, jitter=random.Random(1)
    )
    running = asyncio.create_task(probe.run())
    try:
        yield Watched(backend=backend, store=store, health=health, metrics=metrics)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert probes_under_way() == 0


def virtually(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtually
async def test_a_store_in_use_that_works_is_never_asked() -> None:
    async with watched() as it:
        for _ in range(600):
            await it.put()
            await it.get()
            await asyncio.sleep(0.1)
        assert it.backend.count("put", KEY) == it.backend.count("get", KEY) == 0
        assert not it.metrics.object_store_probes.total()
        assert it.health.warning() is None


@virtually
async def test_store_is_seen_away_and_back_in_seconds_without_traffic() -> None:
    async with watched() as it:
        for _ in range(300):
            await it.put()
            await asyncio.sleep(0.1)
        it.backend.is_away = True
        # One failure is enough for the probe to begin.
        await it.put()
        await it.until(lambda: it.health.refuses_produce, within_sec=5)
        assert it.health.state is UNAVAILABLE
        await asyncio.sleep(600)
        assert it.health.refuses_produce
        # About one a second, each of which writes and reads.
        assert 400 <= it.backend.count("put", KEY) <= 610
        it.backend.is_away = False
        assert await it.until(lambda: it.health.state is HEALTHY, within_sec=5) > 2
        assert not it.health.refuses_produce


@virtually
async def test_a_store_away_without_calls_is_noticed_too() -> None:
    async with watched() as it:
        it.backend.is_away = True
        await it.until(lambda: it.health.refuses_produce, within_sec=30)


@virtually
async def test_a_store_without_calls_is_only_read_from_and_seldom() -> None:
    async with watched() as it:
        await asyncio.sleep(150)
        assert it.backend.count("put") == 0
        assert 8 <= it.backend.count("get", KEY) <= 10
        assert it.metrics.object_store_probes[ProbeOutcome.SUCCEEDED] == it.backend.count("get", KEY)


@virtually
async def test_hanging_store_is_noticed_by_overdue_calls_and_probed() -> None:
    async with watched() as it:
        await it.put()
        with it.backend.hold("put"), it.backend.hold("get"):
            call = asyncio.create_task(it.put())
            await it.until(lambda: it.health.refuses_produce, within_sec=13)
            # Asked again and again although no earlier question was answered, but not without end.
            await asyncio.sleep(60)
            assert probes_under_way() <= MAX_PROBES
            assert it.metrics.object_store_probes[ProbeOutcome.FAILED] > 20
        # The hold's end lets all of them go; what is asked from now on is answered at once.
        await it.until(lambda: it.health.state is HEALTHY, within_sec=6)
        await call


@virtually
async def test_a_store_may_be_given_minutes_and_is_asked_all_the_same() -> None:
    async with watched(dataclasses.replace(POLICY, crit_ms=300_000)) as it:
        await it.put()
        with it.backend.hold("put", "*7"), it.backend.hold("get", "*7"), it.backend.hold("put", "key"):
            call = asyncio.create_task(it.put())
            await asyncio.sleep(120)
            assert 90 <= it.backend.count("put", KEY) <= 120
            assert probes_under_way() <= MAX_PROBES
        await call


@virtually
async def test_one_upload_that_is_held_for_long_is_no_outage() -> None:
    async with watched() as it:
        with it.backend.hold("put", "held"):
            call = asyncio.create_task(it.put("held"))
            for _ in range(600):
                await it.put()
                assert it.health.state is HEALTHY
                await asyncio.sleep(0.1)
        await call


@virtually
async def test_reads_that_succeed_do_not_hide_failing_writes() -> None:
    async with watched() as it:
        await it.put()
        it.backend.takes_writes = False
        for _ in range(50):
            await it.put()
            for _ in range(100):
                await it.get()
            await asyncio.sleep(0.1)
        assert it.health.writes.state is UNAVAILABLE
        assert it.health.reads.state is HEALTHY
        assert it.health.refuses_produce
        assert str(it.health.warning()).startswith("UNAVAILABLE for writes: of ")


@virtually
async def test_writes_that_succeed_are_accepted_without_reads() -> None:
    async with watched() as it:
        it.backend.fail("get", "*", *[StoreUnavailableError("no reads")] * 1_000)
        for _ in range(100):
            await it.put()
            await it.get()
            await asyncio.sleep(0.1)
        assert it.health.reads.state is UNAVAILABLE
        assert it.health.state is UNAVAILABLE
        assert not it.health.refuses_produce


@virtually
async def test_a_slow_store_is_degraded_and_takes_records() -> None:
    async with watched() as it:
        it.backend.latency_sec = 2.0
        await asyncio.gather(*(it.put() for _ in range(40)))
        await it.until(lambda: it.health.state is DEGRADED, within_sec=1)
        assert not it.health.refuses_produce
        it.backend.latency_sec = 0.01
        await it.until(lambda: it.health.state is HEALTHY, within_sec=35)


@virtually
async def test_a_store_that_comes_and_goes_is_believed_less_and_less() -> None:
    async with watched() as it:
        changes = 0
        for second in range(600):
            before = it.health.refuses_produce
            it.backend.is_away = second % 15 < 8
            await it.put()
            await asyncio.sleep(1)
            changes += it.health.refuses_produce is not before
        # Back for 7 s out of 15, 40 times: at most the first returns were believed.
        assert 3 <= changes <= 20


@virtually
async def test_that_an_object_is_there_or_is_not_is_a_success() -> None:
    async with watched() as it:
        await it.store.put("key", [b"x"])
        for _ in range(100):
            with pytest.raises(ObjectExistsError):
                await it.store.put_if_absent("key", [b"x"])
            with pytest.raises(ObjectNotFoundError):
                await it.store.size_bytes("missing")
            await asyncio.sleep(0.05)
        assert it.health.writes.figures.calls > 90
        assert it.health.writes.figures.failed_share == it.health.reads.figures.failed_share == 0


@virtually
async def test_an_unknown_outcome_is_a_failure() -> None:
    async with watched() as it:
        it.backend.fail("put", "key", StoreIndeterminateError("no answer"))
        with pytest.raises(StoreIndeterminateError):
            await it.store.put("key", [b"x"])
        it.health.look()
        assert it.health.writes.figures.failed_share == 1
        assert it.health.is_in_doubt


@virtually
async def test_a_listing_is_one_call_however_many_objects_it_has() -> None:
    async with watched() as it:
        for number in range(500):
            await it.backend.inner.put(f"some/{number:03}", [b"x"])
        assert len([info async for info in it.store.list("some/")]) == 500
        it.health.look()
        assert it.health.reads.figures.calls == 1
        it.backend.fail("list", "some/", StoreUnavailableError("away"))
        with pytest.raises(StoreUnavailableError):
            [info async for info in it.store.list("some/")]
        it.health.look()
        assert (it.health.reads.figures.calls, it.health.reads.figures.failed_share) == (2, 0.5)


@virtually
async def test_deletions_say_nothing() -> None:
    async with watched() as it:
        it.backend.fail("delete", "*", *[StoreUnavailableError("denied")] * 20)
        for _ in range(20):
            with pytest.raises(StoreUnavailableError):
                await it.store.delete(["key"])
        it.health.look()
        assert it.health.writes.figures.calls == it.health.reads.figures.calls == 0


@virtually
async def test_large_objects_may_take_longer() -> None:
    async with watched() as it:
        it.backend.latency_sec = 1.5
        await asyncio.gather(*(it.store.put(f"{n}", [bytes(4 * 2**20)]) for n in range(12)))
        it.health.look()
        assert it.health.writes.figures.calls == 12
        assert it.health.writes.figures.slow_share == 0


@virtually
async def test_a_streamed_object_waits_for_its_chunks_without_harm() -> None:
    async def chunks(pause_sec: float, then: Exception | None = None) -> AsyncIterator[Buffer]:
        for _ in range(3):
            await asyncio.sleep(pause_sec)
            yield b"x"
        if then is not None:
            raise then

    async with watched() as it:
        for number in range(5):
            await it.store.put_if_absent_streamed(f"n/{number}", chunks(60), 3)
            with pytest.raises(StoreUnavailableError):
                await it.store.put_if_absent_streamed("n/x", chunks(60, StoreUnavailableError("source")), 3)
        for number in range(5, 10):
            await it.store.put_if_absent_streamed(f"n/{number}", chunks(0.1), 3)
        it.health.look()
        assert (it.health.writes.figures.calls, it.health.writes.figures.slow_share) == (5, 0)
        assert it.health.state is StoreState.HEALTHY


@virtually
async def test_streamed_object_that_fails_or_is_held_up_counts() -> None:
    async def chunks() -> AsyncIterator[Buffer]:
        yield b"x"

    async with watched() as it:
        it.backend.is_away = True
        with pytest.raises(StoreUnavailableError):
            await it.store.put_if_absent_streamed("n/a", chunks(), 1)
        it.backend.is_away = False
        it.health.look()
        assert it.health.writes.figures.failed_share == 1
        with it.backend.hold("put_if_absent_streamed") as hold:
            creating = asyncio.create_task(it.store.put_if_absent_streamed("n/b", chunks(), 1))
            await hold.reached()
            # Longer than its part that is in flight may take: 64 MiB at 4 KiB a millisecond, and crit_ms.
            await asyncio.sleep(16.4 + POLICY.crit_ms / 1000)
            it.health.look()
            assert it.health.writes.figures.calls >= 2
            assert it.health.writes.figures.failed_share > 0
            hold.release()
            await creating


@virtually
async def test_the_figures_are_exported() -> None:
    async with watched() as it:
        it.health.register_gauges(it.metrics)
        await it.put()
        it.backend.is_away = True
        await it.put()
        await it.until(lambda: it.health.refuses_produce, within_sec=5)
        page = render(it.metrics).decode()
        assert 'kafscale_object_store_health{calls="write"} 2.0' in page
        assert f'{metric_families.OBJECT_STORE_FAILED_RATIO.name}{{calls="write"}} 0.' in page
        assert f'{metric_families.OBJECT_STORE_SLOW_RATIO.name}{{calls="read"}} ' in page
        assert f'{metric_families.OBJECT_STORE_LATENCY.name}{{calls="write"}} 0.00' in page
        assert 'kafscale_object_store_probes_total{outcome="failed"} ' in page


def test_each_change_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def come_and_go() -> None:
        async with watched() as it:
            await it.put()
            it.backend.is_away = True
            await it.put()
            await it.until(lambda: it.health.state is UNAVAILABLE, within_sec=5)
            await asyncio.sleep(60)
            it.backend.is_away = False
            await it.until(lambda: it.health.state is HEALTHY, within_sec=5)

    with caplog.at_level(logging.INFO, "kafscale.objects.health"):
        run_virtually(come_and_go())
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert sorted(lines) == [
        ("INFO", "the object store is HEALTHY for reads"),
        ("INFO", "the object store is HEALTHY for writes"),
        ("WARNING", "the object store is UNAVAILABLE for reads"),
        ("WARNING", "the object store is UNAVAILABLE for writes"),
    ]


def test_the_limits_are_the_settings() -> None:
    settings = Settings(
        s3_health_window_sec=60,
        s3_latency_warn_ms=500,
        s3_latency_crit_ms=3_000,
        s3_error_rate_warn=0.2,
        s3_error_rate_crit=0.6,
    )
    assert health_policy(settings) == HealthPolicy(
        window_ms=60_000, warn_ms=500, crit_ms=3_000, warn_share=0.2, crit_share=0.6
    )
