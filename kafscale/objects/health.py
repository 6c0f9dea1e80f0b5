"""The object store's health: every call is reported to it, and a probe asks the store when there is doubt.

Reads and writes are judged apart, so that many reads that go well do not hide that nothing can be written.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kafscale.errors import ObjectNotFoundError, StoreError, StoreIndeterminateError, StoreUnavailableError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics, ProbeOutcome
from kafscale.ops.store_health import Call, HealthFigures, HealthPolicy, HealthWindow, StoreState
from kafscale.settings.broker import Settings

logger = logging.getLogger(__name__)

LOOK_INTERVAL_SEC = 0.25
PROBE_INTERVAL_SEC = 1.0
# Probes that hang do not keep the next one from being made: the store may be back by then.
MAX_PROBES = 24
# A call may take longer by what its bytes take at this pace: one flush is no fifth of a common uplink.
BYTES_PER_MS = 4 * 1024

# So much of a streamed object may be in flight when the store is waited for.
_STREAMED_AT_ONCE_BYTES = 64 * 1024 * 1024
# A probe waits until its call counts as failed, and not a rounded millisecond less.
_OVERDUE_MS = 10
_FAILURES = (StoreUnavailableError, StoreIndeterminateError, TimeoutError)


def health_policy(settings: Settings) -> HealthPolicy:
    """The limits that the settings give."""
    return HealthPolicy(
        window_ms=settings.s3_health_window_sec * 1000,
        warn_ms=settings.s3_latency_warn_ms,
        crit_ms=settings.s3_latency_crit_ms,
        warn_share=settings.s3_error_rate_warn,
        crit_share=settings.s3_error_rate_crit,
    )


class ObjectStoreHealth:
    """The state of the object store by its calls. `now_ms`: milliseconds of a clock that never goes back."""

    def __init__(self, policy: HealthPolicy, now_ms: Callable[[], int]) -> None:
        self.policy = policy
        self.reads = HealthWindow(policy, now_ms())
        self.writes = HealthWindow(policy, now_ms())
        self._now_ms = now_ms

    # --- the calls

    def reading(self, size_bytes: int = 0) -> AbstractContextManager[None]:
        """The block is one call that reads; `size_bytes` of it, as far as that is known."""
        return self._watched(self.reads, size_bytes // BYTES_PER_MS)

    def writing(self, size_bytes: int = 0) -> AbstractContextManager[None]:
        """The block is one call that writes."""
        return self._watched(self.writes, size_bytes // BYTES_PER_MS)

    @contextmanager
    def streaming(self) -> "Iterator[StreamedWrite]":
        """The block is one call that writes, and waits for its caller in between."""
        write = StreamedWrite(self.writes, self._now_ms)
        write.goes_on()
        try:
            yield write
        except _FAILURES:
            write.ended(failed=True)
            raise
        except StoreError:
            write.ended(failed=False)
            raise
        except BaseException:
            write.waits()
            raise
        write.ended(failed=False)

    @contextmanager
    def listing(self) -> Iterator[None]:
        """The block waits for the next object of a listing, which often is at hand: only the end counts as a call.

        A wait that fails, or takes too long, counts as well.
        """
        call = self.reads.began(self._now_ms())
        try:
            yield
        except StopAsyncIteration:
            self.reads.ended(call, self._now_ms(), failed=False)
            raise
        except _FAILURES:
            self.reads.ended(call, self._now_ms(), failed=True)
            raise
        except BaseException:
            self.reads.abandoned(call, self._now_ms())
            raise
        self.reads.abandoned(call, self._now_ms())

    @contextmanager
    def _watched(self, window: HealthWindow, allowance_ms: int) -> Iterator[None]:
        call = window.began(self._now_ms(), allowance_ms)
        try:
            yield
        except _FAILURES:
            window.ended(call, self._now_ms(), failed=True)
            raise
        except StoreError:
            # That an object is there, or is not, is an answer.
            window.ended(call, self._now_ms(), failed=False)
            raise
        except BaseException:
            window.abandoned(call, self._now_ms())
            raise
        window.ended(call, self._now_ms(), failed=False)

    # --- what they say

    @property
    def state(self) -> StoreState:
        """The worse of the two."""
        return max(self.reads.state, self.writes.state)

    @property
    def refuses_produce(self) -> bool:
        """True if records that came now could not be stored in time."""
        return self.writes.state is StoreState.UNAVAILABLE

    def look(self) -> None:
        """Judge again, and log what has changed."""
        for what, window in (("reads", self.reads), ("writes", self.writes)):
            before = window.state
            figures = window.look(self._now_ms())
            if figures.state is not before:
                _log_change(what, before, figures)

    @property
    def is_in_doubt(self) -> bool:
        """True if the store should be asked how it is."""
        now_ms = self._now_ms()
        return self.reads.is_in_doubt(now_ms) or self.writes.is_in_doubt(now_ms)

    @property
    def is_idle(self) -> bool:
        """True if for half a window no call has said how the store is."""
        now_ms = self._now_ms()
        return min(self.reads.idle_ms(now_ms), self.writes.idle_ms(now_ms)) >= self.policy.window_ms // 2

    def warning(self) -> str | None:
        """The text for `/readyz` while not all is well; for any thread."""
        reads, writes = self.reads.figures, self.writes.figures
        what, worse = ("reads", reads) if reads.state > writes.state else ("writes", writes)
        return (
            None
            if worse.state is StoreState.HEALTHY
            else f"{worse.state.name} for {what}: {_in_words(worse)}"
        )

    def register_gauges(self, metrics: Metrics) -> None:
        """Export the figures of the last look."""
        for what, window in (("read", self.reads), ("write", self.writes)):
            _register(metrics, what, window)


class StreamedWrite:
    """One streamed write. The time for which it waits for its caller says nothing of the store.

    Neither does what it ends with meanwhile: that is the caller's.
    """

    def __init__(self, window: HealthWindow, now_ms: Callable[[], int]) -> None:
        self._window = window
        self._now_ms = now_ms
        self._call: Call | None = None

    def waits(self) -> None:
        """The store waits for the caller from now on."""
        if self._call is not None:
            self._window.abandoned(self._call, self._now_ms())
            self._call = None

    def goes_on(self) -> None:
        """It is the store again that is waited for."""
        self._call = self._window.began(self._now_ms(), _STREAMED_AT_ONCE_BYTES // BYTES_PER_MS)

    def ended(self, *, failed: bool) -> None:
        """The store has answered, or the call has failed."""
        if self._call is not None:
            self._window.ended(self._call, self._now_ms(), failed=failed)
            self._call = None


def _register(metrics: Metrics, what: str, window: HealthWindow) -> None:
    gauge = metrics.gauge
    gauge(metric_families.OBJECT_STORE_HEALTH, lambda: window.figures.state, calls=what)
    gauge(metric_families.OBJECT_STORE_SLOW_RATIO, lambda: window.figures.slow_share, calls=what)
    gauge(metric_families.OBJECT_STORE_FAILED_RATIO, lambda: window.figures.failed_share, calls=what)
    gauge(metric_families.OBJECT_STORE_LATENCY, lambda: window.figures.latency_ms / 1000, calls=what)


def _in_words(figures: HealthFigures) -> str:
    return (
        f"of {figures.calls} calls {figures.slow_share:.0%} were slow and {figures.failed_share:.0%} failed"
    )


def _log_change(what: str, before: StoreState, figures: HealthFigures) -> None:
    level = logging.INFO if figures.state is StoreState.HEALTHY else logging.WARNING
    logger.log(
        level,
        "the object store is %s for %s",
        figures.state.name,
        what,
        extra={
            "before": before.name,
            "calls": figures.calls,
            "slow": f"{figures.slow_share:.0%}",
            "failed": f"{figures.failed_share:.0%}",
        },
    )


class ObjectStoreProbe:
    """Looks at the health a few times a second, and asks the store itself while there is doubt.

    `objects` reports its calls to `health`, as `MeasuredObjectStore` does. In doubt an object is written and read
    again, which proves that both work; a store without calls for a while is only read from.
    """

    def __init__(
        self,
        objects: ObjectStore,
        health: ObjectStoreHealth,
        metrics: Metrics,
        *,
        keys: Sequence[str],
        broker_id: int,
        jitter: random.Random,
    ) -> None:
        """`keys`: the objects that it writes and reads, one for each bucket."""
        self._objects = objects
        self._health = health
        self._outcomes = metrics.object_store_probes
        self._keys = tuple(keys)
        self._content = f"broker {broker_id} asks whether it can write\n".encode()
        self._jitter = jitter
        self._probes: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        """Look and ask until cancelled; probes in flight are cancelled then."""
        loop = asyncio.get_running_loop()
        next_sec = loop.time()
        try:
            while True:
                self._health.look()
                if loop.time() >= next_sec and self._is_due():
                    self._start()
                    next_sec = loop.time() + PROBE_INTERVAL_SEC * self._jitter.uniform(1.0, 1.25)
                await asyncio.sleep(LOOK_INTERVAL_SEC)
        finally:
            probes = list(self._probes)
            for probe in probes:
                probe.cancel()
            self._outcomes[ProbeOutcome.FAILED] += 1
            await asyncio.gather(*probes, return_exceptions=True)

    def _is_due(self) -> bool:
        return self._health.is_in_doubt or (self._health.is_idle and not self._probes)

    def _start(self) -> None:
        asks: list[Coroutine[Any, Any, object]] = [self._objects.get(key) for key in self._keys]
        if self._health.is_in_doubt:
            asks += [self._objects.put(key, [self._content]) for key in self._keys]
        for ask in asks:
            probe = asyncio.create_task(self._probe(ask), name="object store probe")
            self._probes[probe] = None
            probe.add_done_callback(self._probes.pop)
        for probe in list(self._probes)[: -MAX_PROBES * len(self._keys)]:
            probe.cancel()

    async def _probe(self, ask: Coroutine[Any, Any, object]) -> None:
        outcome = ProbeOutcome.FAILED
        try:
            async with asyncio.timeout((self._health.policy.crit_ms + _OVERDUE_MS) / 1000):
                await ask
            outcome = ProbeOutcome.SUCCEEDED
        except ObjectNotFoundError:
            outcome = ProbeOutcome.SUCCEEDED
        except (StoreError, TimeoutError) as problem:
            logger.debug("a probe failed", extra={"problem": str(problem)})
        except Exception:
            logger.exception("a probe could not ask the object store")
        self._outcomes[outcome] += 1
