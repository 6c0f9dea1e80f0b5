"""How well a store answers, judged from its calls over a rolling window: HEALTHY, DEGRADED or UNAVAILABLE.

A call is *slow* from `warn_ms` on and *failed* when it raised or from `crit_ms` on, ended or not; what failed
is slow as well. Of at least `MIN_CALLS` in the window, a share of `warn_share` slow ones means DEGRADED until
it has fallen to half of that, and a share of `crit_share` failed ones means UNAVAILABLE. So do `OUTAGE_CALLS`
failures, with no success among them, that began `OUTAGE_MS` ago: a store that went away is noticed before the
window is full of it. Only a run of successes ends UNAVAILABLE, at least `RECOVERY_CALLS` over `RECOVERY_MS`,
and over twice that after each relapse; then the window starts again, and calls that are older are not counted:
they say how the store was.
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum

SLOTS = 30
MIN_CALLS = 10
OUTAGE_CALLS = 3
OUTAGE_MS = 3_000
RECOVERY_CALLS = 3
RECOVERY_MS = 2_000
MAX_RECOVERY_MS = 8_000
# The precision of the latency: each bound is a quarter above the one before, from a millisecond to a minute.
LATENCY_BOUNDS_MS = tuple(1.25**exponent for exponent in range(50))


class StoreState(IntEnum):
    """The values are those of the metric."""

    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """The limits. Shares are above 0 and up to 1, `warn_ms` <= `crit_ms` and `warn_share` <= `crit_share`."""

    window_ms: int
    warn_ms: int
    crit_ms: int
    warn_share: float
    crit_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFigures:
    """The findings of the last look. `latency_ms`: the one that a share of `warn_share` of the calls exceeds."""

    state: StoreState = StoreState.HEALTHY
    calls: int = 0
    slow_share: float = 0.0
    failed_share: float = 0.0
    latency_ms: float = 0.0


class Call:
    """One call in flight. `allowance_ms`: what it may take longer than others for the bytes it moves."""

    __slots__ = ("allowance_ms", "started_ms")

    def __init__(self, started_ms: int, allowance_ms: int) -> None:
        self.started_ms = started_ms
        self.allowance_ms = allowance_ms

    def age_ms(self, now_ms: int) -> int:
        """How long the call takes by now, without its allowance."""
        return now_ms - self.started_ms - self.allowance_ms


class _Counts:
    """Calls that ended. `latencies` has one more count than there are bounds, for what exceeds them all."""

    __slots__ = ("calls", "failed", "latencies", "slow")

    def __init__(self) -> None:
        self.calls = self.slow = self.failed = 0
        self.latencies = [0] * (len(LATENCY_BOUNDS_MS) + 1)

    def add(self, latency: int, *, slow: bool, failed: bool) -> None:
        self.calls += 1
        self.slow += slow
        self.failed += failed
        self.latencies[latency] += 1

    def take_away(self, counts: "_Counts") -> None:
        self.calls -= counts.calls
        self.slow -= counts.slow
        self.failed -= counts.failed
        self.latencies = [
            mine - theirs for mine, theirs in zip(self.latencies, counts.latencies, strict=True)
        ]

    def latency_ms(self, exceeding_share: float) -> float:
        """The bound that no more than this share of the calls exceeds; 0 when there are none."""
        exceeding = self.calls
        for bound, count in zip(LATENCY_BOUNDS_MS, self.latencies, strict=False):
            exceeding -= count
            if exceeding <= self.calls * exceeding_share:
                return bound if self.calls else 0.0
        return LATENCY_BOUNDS_MS[-1]


class HealthWindow:
    """One kind of calls to one store. Times are milliseconds of one clock that never goes back.

    Its memory does not depend on the number of calls but for those in flight.
    """

    def __init__(self, policy: HealthPolicy, now_ms: int) -> None:
        self.figures = HealthFigures()
        self._policy = policy
        self._slot_ms = max(1, policy.window_ms // SLOTS)
        self._newest = now_ms // self._slot_ms
        self._in_flight: dict[Call, None] = {}
        self._ended_ms = now_ms
        self._succeeded_ms = now_ms
        self._failures = 0
        self._failing_since_ms = now_ms
        self._successes = 0
        self._succeeding_since_ms = now_ms
        self._recovered_ms: int | None = None
        self._recovery_ms = RECOVERY_MS
        self._start_anew(now_ms)

    def _start_anew(self, now_ms: int) -> None:
        """Forget what was; calls that began earlier say nothing about now."""
        self._since_ms = now_ms
        self._slots = [_Counts() for _ in range(SLOTS)]
        self._total = _Counts()
        self._failures = 0

    # --- what happens

    def began(self, now_ms: int, allowance_ms: int = 0) -> Call:
        """A call begins; `ended` or `abandoned` follows."""
        call = Call(now_ms, allowance_ms)
        self._in_flight[call] = None
        return call

    def ended(self, call: Call, now_ms: int, *, failed: bool) -> None:
        """The store has answered the call, or the call has failed."""
        del self._in_flight[call]
        if call.started_ms < self._since_ms:
            return
        age_ms = max(0, call.age_ms(now_ms))
        failed = failed or age_ms >= self._policy.crit_ms
        self._ended_ms = now_ms
        self._advance(now_ms)
        latency = bisect_left(LATENCY_BOUNDS_MS, age_ms)
        for counts in (self._slots[self._newest % SLOTS], self._total):
            counts.add(latency, slow=failed or age_ms >= self._policy.warn_ms, failed=failed)
        if failed:
            self._count_failure(call)
        else:
            self._count_success(now_ms)

    def abandoned(self, call: Call, now_ms: int) -> None:
        """The caller no longer waits. That says nothing of the store, unless it had time enough to answer."""
        if call.age_ms(now_ms) >= self._policy.crit_ms:
            self.ended(call, now_ms, failed=True)
        else:
            del self._in_flight[call]

    def _count_failure(self, call: Call) -> None:
        if not self._failures:
            self._failing_since_ms = call.started_ms
        self._failures += 1
        # A call from before the run may end late, and badly, without being any news.
        if call.started_ms >= self._succeeding_since_ms:
            self._successes = 0

    def _count_success(self, now_ms: int) -> None:
        self._failures = 0
        self._succeeded_ms = now_ms
        if not self._successes:
            self._succeeding_since_ms = now_ms
        self._successes += 1

    def _advance(self, now_ms: int) -> None:
        number = now_ms // self._slot_ms
        for passed in range(max(self._newest + 1, number - SLOTS + 1), number + 1):
            slot = self._slots[passed % SLOTS]
            if slot.calls:
                self._total.take_away(slot)
                self._slots[passed % SLOTS] = _Counts()
        self._newest = max(self._newest, number)

    # --- what it means

    @property
    def state(self) -> StoreState:
        """The state at the last look."""
        return self.figures.state

    def look(self, now_ms: int) -> HealthFigures:
        """Judge by everything up to now; the figures stay until the next look."""
        self._advance(now_ms)
        if self.state is StoreState.UNAVAILABLE and self._has_recovered(now_ms):
            self._recovered_ms = now_ms
            self._start_anew(now_ms)
            self.figures = HealthFigures()
        late = self._late(now_ms)
        overdue = [call for call in late if call.age_ms(now_ms) >= self._policy.crit_ms]
        calls = self._total.calls + len(late)
        slow_share = (self._total.slow + len(late)) / max(1, calls)
        failed_share = (self._total.failed + len(overdue)) / max(1, calls)
        is_failing = calls >= MIN_CALLS and failed_share >= self._policy.crit_share
        state = self.state
        if state is not StoreState.UNAVAILABLE:
            if is_failing or self._is_outage(now_ms, overdue):
                state = StoreState.UNAVAILABLE
                self._start_outage(now_ms)
            else:
                state = self._without_outage(slow_share, calls)
        self.figures = HealthFigures(
            state=state,
            calls=calls,
            slow_share=slow_share,
            failed_share=failed_share,
            latency_ms=self._total.latency_ms(self._policy.warn_share),
        )
        return self.figures

    def _late(self, now_ms: int) -> list[Call]:
        """The calls in flight that are slow already."""
        return [
            call
            for call in self._in_flight
            if call.started_ms >= self._since_ms and call.age_ms(now_ms) >= self._policy.warn_ms
        ]

    def _is_outage(self, now_ms: int, overdue: list[Call]) -> bool:
        """True if there have been only failures for long enough."""
        # While other calls succeed, some that hang are no outage.
        hanging = overdue if now_ms - self._succeeded_ms >= OUTAGE_MS else []
        began_ms = [call.started_ms for call in hanging]
        if self._failures:
            began_ms.append(self._failing_since_ms)
        return self._failures + len(hanging) >= OUTAGE_CALLS and now_ms - min(began_ms) >= OUTAGE_MS

    def _start_outage(self, now_ms: int) -> None:
        relapsed = self._recovered_ms is not None and now_ms - self._recovered_ms < self._policy.window_ms
        self._recovery_ms = min(self._recovery_ms * 2, MAX_RECOVERY_MS) if relapsed else RECOVERY_MS
        self._successes = 0

    def _has_recovered(self, now_ms: int) -> bool:
        return self._successes >= RECOVERY_CALLS and now_ms - self._succeeding_since_ms >= self._recovery_ms

    def _without_outage(self, slow_share: float, calls: int) -> StoreState:
        if self.state is StoreState.DEGRADED:
            is_slow = slow_share >= self._policy.warn_share / 2
        else:
            is_slow = calls >= MIN_CALLS and slow_share >= self._policy.warn_share
        return StoreState.DEGRADED if is_slow else StoreState.HEALTHY

    # --- whether to ask

    def is_in_doubt(self, now_ms: int) -> bool:
        """True if the store should be probed, rather than judged by the next calls that happen anyway."""
        return self.state is not StoreState.HEALTHY or self._failures > 0 or bool(self._late(now_ms))

    def idle_ms(self, now_ms: int) -> int:
        """How long ago the last call ended."""
        return now_ms - self._ended_ms
