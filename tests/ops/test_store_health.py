"""The health of a store as its calls tell it, on a clock of the test's own."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.ops.store_health import (
    MAX_RECOVERY_MS,
    MIN_CALLS,
    OUTAGE_CALLS,
    OUTAGE_MS,
    RECOVERY_CALLS,
    RECOVERY_MS,
    SLOTS,
    HealthFigures,
    HealthPolicy,
    HealthWindow,
    StoreState,
)

POLICY = HealthPolicy(window_ms=30_000, warn_ms=1_000, crit_ms=10_000, warn_share=0.1, crit_share=0.5)
SLOT_MS = POLICY.window_ms // SLOTS
HEALTHY, DEGRADED, UNAVAILABLE = StoreState


class Store:
    """A window, its clock, and calls that go as the test says."""

    def __init__(self, policy: HealthPolicy = POLICY, now_ms: int = 5_000_000) -> None:
        self.now_ms = now_ms
        self.window = HealthWindow(policy, now_ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def look(self) -> HealthFigures:
        return self.window.look(self.now_ms)

    @property
    def state(self) -> StoreState:
        return self.look().state

    def calls(self, count: int, *, ms: int = 10, failed: bool = False, every_ms: int = 0) -> None:
        """So many calls, one after the other, each of which takes `ms` and is followed by a pause."""
        for _ in range(count):
            call = self.window.began(self.now_ms)
            self.wait(ms)
            self.window.ended(call, self.now_ms, failed=failed)
            self.wait(every_ms)

    def together(self, count: int, *, ms: int = 10, failed: bool = False) -> None:
        """So many calls at the same time."""
        calls = [self.window.began(self.now_ms) for _ in range(count)]
        self.wait(ms)
        for call in calls:
            self.window.ended(call, self.now_ms, failed=failed)

    def go_away(self) -> None:
        """Fail until it is noticed."""
        self.calls(OUTAGE_CALLS + 1, failed=True, every_ms=1_000)
        assert self.state is UNAVAILABLE

    def come_back(self, within_ms: int = RECOVERY_MS) -> None:
        """Succeed for the time that it takes to be believed, and no shorter."""
        for _ in range(within_ms // 500):
            self.calls(1, every_ms=490)
            assert self.state is UNAVAILABLE
        self.calls(1)
        assert self.state is HEALTHY


# --- DEGRADED


def test_a_store_without_calls_is_healthy() -> None:
    store = Store()
    assert store.look() == HealthFigures()
    store.wait(10 * POLICY.window_ms)
    assert store.look() == HealthFigures()


def test_a_share_of_slow_calls_degrades_the_store() -> None:
    store = Store()
    store.calls(18)
    store.calls(1, ms=1_000)
    assert store.state is HEALTHY
    store.calls(1, ms=1_000)
    assert store.state is DEGRADED
    assert store.look().slow_share == 0.1
    assert store.look().failed_share == 0


def test_a_share_of_failed_calls_degrades_the_store() -> None:
    store = Store()
    store.calls(8)
    store.calls(2, failed=True)
    assert store.state is DEGRADED
    assert store.look().failed_share == 0.2


def test_a_few_calls_say_nothing_yet() -> None:
    store = Store()
    store.together(MIN_CALLS - 1, ms=5_000)
    assert store.state is HEALTHY
    store.together(1, ms=5_000)
    assert store.state is DEGRADED


def test_slow_calls_count_before_they_end() -> None:
    store = Store()
    store.calls(9)
    store.window.began(store.now_ms)
    store.wait(999)
    assert store.state is HEALTHY
    store.wait(1)
    assert store.state is DEGRADED


def test_a_degraded_store_is_healthy_again_at_half_the_share() -> None:
    store = Store()
    store.calls(18)
    store.together(2, ms=1_000)
    assert store.state is DEGRADED
    store.calls(20)
    assert store.look().slow_share == 0.05
    assert store.state is DEGRADED
    store.calls(1)
    assert store.state is HEALTHY


def test_what_is_older_than_the_window_is_forgotten() -> None:
    store = Store()
    store.calls(18)
    store.together(2, ms=1_000)
    assert store.state is DEGRADED
    store.wait(POLICY.window_ms - SLOT_MS)
    assert store.state is DEGRADED
    store.wait(SLOT_MS)
    assert store.look() == HealthFigures()


def test_a_call_may_take_longer_for_the_bytes_it_moves() -> None:
    store = Store()
    for _ in range(2):
        calls = [store.window.began(store.now_ms, allowance_ms=4_000) for _ in range(20)]
        store.wait(4_999)
        assert store.state is HEALTHY
        for call in calls:
            store.window.ended(call, store.now_ms, failed=False)
        assert store.state is HEALTHY
    assert store.look().latency_ms < POLICY.warn_ms * 1.25
    calls = [store.window.began(store.now_ms, allowance_ms=4_000) for _ in range(20)]
    store.wait(5_000)
    assert store.state is DEGRADED


# --- UNAVAILABLE


def test_share_of_failures_makes_the_store_unavailable() -> None:
    store = Store()
    for _ in range(4):
        store.calls(1, failed=True)
        store.calls(1)
    assert store.state is HEALTHY
    store.calls(1)
    store.calls(1, failed=True)
    assert store.state is UNAVAILABLE


def test_calls_that_take_too_long_are_failures() -> None:
    store = Store()
    store.together(10, ms=9_999)
    assert store.state is DEGRADED
    store.together(10, ms=10_000)
    assert store.look().failed_share == 0.5
    assert store.state is UNAVAILABLE


def test_outage_is_noticed_before_the_window_is_full() -> None:
    store = Store()
    store.calls(10_000, ms=2)
    store.calls(29, ms=2, failed=True, every_ms=98)
    assert store.look().failed_share < 0.01
    assert store.state is HEALTHY
    store.calls(2, ms=2, failed=True, every_ms=98)
    assert store.state is UNAVAILABLE


def test_a_moment_of_failures_is_no_outage() -> None:
    store = Store()
    store.calls(1_000)
    store.together(50, failed=True)
    store.wait(OUTAGE_MS - 20)
    assert store.state is HEALTHY
    store.calls(1)
    store.wait(OUTAGE_MS)
    assert store.state is HEALTHY


def test_store_that_never_answers_fails_by_overdue_calls() -> None:
    store = Store()
    store.calls(1_000)
    for _ in range(OUTAGE_CALLS):
        store.window.began(store.now_ms)
    store.wait(POLICY.crit_ms - 1)
    assert store.state is not UNAVAILABLE
    store.wait(1)
    assert store.state is UNAVAILABLE


def test_calls_that_hang_while_others_succeed_are_no_outage() -> None:
    store = Store()
    for _ in range(OUTAGE_CALLS):
        store.window.began(store.now_ms)
    for _ in range(60):
        store.calls(1, every_ms=990)
        assert store.state is not UNAVAILABLE
    assert store.state is DEGRADED


def test_cancelled_call_counts_only_after_a_long_wait() -> None:
    store = Store()
    for _ in range(20):
        call = store.window.began(store.now_ms)
        store.wait(POLICY.crit_ms - 1)
        store.window.abandoned(call, store.now_ms)
    assert store.look().calls == 0
    calls = [store.window.began(store.now_ms) for _ in range(OUTAGE_CALLS)]
    store.wait(POLICY.crit_ms)
    for call in calls:
        store.window.abandoned(call, store.now_ms)
    assert store.look().failed_share == 1
    assert store.state is UNAVAILABLE


# --- and back


def test_a_run_of_successes_ends_the_outage() -> None:
    store = Store()
    store.calls(1_000)
    store.go_away()
    store.come_back()


def test_time_alone_ends_nothing() -> None:
    store = Store()
    store.go_away()
    store.wait(10 * POLICY.window_ms)
    assert store.state is UNAVAILABLE


def test_many_successes_in_a_moment_do_not_end_the_outage() -> None:
    store = Store()
    store.go_away()
    store.calls(100)
    assert store.state is UNAVAILABLE


def test_two_successes_do_not_end_an_outage() -> None:
    store = Store()
    store.go_away()
    store.calls(RECOVERY_CALLS - 1, every_ms=RECOVERY_MS)
    assert store.state is UNAVAILABLE
    store.calls(1)
    assert store.state is HEALTHY


def test_a_failure_within_the_run_begins_it_again() -> None:
    store = Store()
    store.go_away()
    store.calls(3, every_ms=600)
    store.calls(1, failed=True)
    store.come_back()


def test_a_call_from_before_the_return_may_fail_late() -> None:
    store = Store()
    store.go_away()
    hanging = [store.window.began(store.now_ms) for _ in range(5)]
    store.wait(1)
    store.calls(2, every_ms=990)
    store.window.ended(hanging[0], store.now_ms, failed=True)
    store.calls(1, every_ms=990)
    assert store.state is HEALTHY
    for call in hanging[1:]:
        store.window.ended(call, store.now_ms, failed=True)
    store.wait(OUTAGE_MS)
    assert store.look() == HealthFigures()


def test_calls_hanging_since_the_outage_do_not_count() -> None:
    store = Store()
    for _ in range(20):
        store.window.began(store.now_ms)
    store.wait(POLICY.crit_ms)
    assert store.state is UNAVAILABLE
    store.come_back()
    store.wait(POLICY.crit_ms)
    assert store.state is HEALTHY
    assert not store.window.is_in_doubt(store.now_ms)


def test_each_relapse_takes_twice_as_long_to_be_forgiven() -> None:
    store = Store()
    store.go_away()
    expected_ms = RECOVERY_MS
    for _ in range(5):
        store.come_back(expected_ms)
        store.go_away()
        expected_ms = min(2 * expected_ms, MAX_RECOVERY_MS)
    store.come_back(MAX_RECOVERY_MS)
    store.wait(POLICY.window_ms)
    store.go_away()
    store.come_back(RECOVERY_MS)


# --- when to ask


def test_a_failure_leaves_a_doubt_until_something_succeeds() -> None:
    store = Store()
    store.calls(1_000)
    assert not store.window.is_in_doubt(store.now_ms)
    store.calls(1, failed=True)
    store.look()
    assert store.window.is_in_doubt(store.now_ms)
    store.calls(1)
    assert not store.window.is_in_doubt(store.now_ms)


def test_a_slow_call_in_flight_leaves_a_doubt() -> None:
    store = Store()
    call = store.window.began(store.now_ms)
    store.wait(999)
    assert not store.window.is_in_doubt(store.now_ms)
    store.wait(1)
    assert store.window.is_in_doubt(store.now_ms)
    store.window.ended(call, store.now_ms, failed=False)
    assert not store.window.is_in_doubt(store.now_ms)


def test_while_it_is_not_healthy_it_is_in_doubt() -> None:
    store = Store()
    store.together(10, ms=2_000)
    assert store.state is DEGRADED
    assert store.window.is_in_doubt(store.now_ms)
    store.go_away()
    store.wait(POLICY.window_ms)
    assert store.window.is_in_doubt(store.now_ms)


def test_idle_is_the_time_since_a_call_ended() -> None:
    store = Store()
    store.wait(700)
    assert store.window.idle_ms(store.now_ms) == 700
    store.window.began(store.now_ms)
    store.wait(100)
    assert store.window.idle_ms(store.now_ms) == 800
    store.calls(1)
    assert store.window.idle_ms(store.now_ms) == 0


# --- whatever happens

STEPS = st.lists(
    st.tuples(st.sampled_from(("call", "call", "call", "fail", "give up", "hang")), st.integers(0, 12_000)),
    max_size=60,
)


@given(STEPS)
def test_the_shares_are_those_of_the_calls_within_the_window(steps: list[tuple[str, int]]) -> None:
    # So much of everything may fail that nothing makes it unavailable, which would empty the window.
    policy = HealthPolicy(window_ms=30_000, warn_ms=1_000, crit_ms=30_000_000, warn_share=0.1, crit_share=1.0)
    store = Store(policy)
    ended: list[tuple[int, bool, bool]] = []
    hanging: list[int] = []
    store.calls(1)
    ended.append((store.now_ms, False, False))
    for what, ms in steps:
        call = store.window.began(store.now_ms)
        if what == "hang":
            hanging.append(store.now_ms)
            continue
        store.wait(ms)
        if what == "give up":
            store.window.abandoned(call, store.now_ms)
            continue
        store.window.ended(call, store.now_ms, failed=what == "fail")
        ended.append((store.now_ms, what == "fail" or ms >= 1_000, what == "fail"))
        if what == "fail":
            # No streak of failures: that is an outage whatever the shares are.
            store.calls(1, ms=0)
            ended.append((store.now_ms, False, False))
    figures = store.look()
    oldest_slot = store.now_ms // SLOT_MS - SLOTS + 1
    counted = [each for each in ended if each[0] // SLOT_MS >= oldest_slot]
    late = sum(store.now_ms - started_ms >= 1_000 for started_ms in hanging)
    assert figures.calls == len(counted) + late
    if figures.calls:
        assert figures.slow_share == (sum(slow for _, slow, _ in counted) + late) / figures.calls
        assert figures.failed_share == sum(failed for _, _, failed in counted) / figures.calls


@given(STEPS)
def test_only_failures_and_overdue_calls_make_unavailable(steps: list[tuple[str, int]]) -> None:
    store = Store()
    for what, ms in steps:
        store.calls(1, ms=0 if what == "fail" else min(ms, POLICY.crit_ms - 1))
        assert store.state is not UNAVAILABLE


@given(STEPS)
def test_working_store_is_healthy_within_a_minute(steps: list[tuple[str, int]]) -> None:
    store = Store()
    for what, ms in steps:
        call = store.window.began(store.now_ms)
        store.wait(ms)
        if what != "hang":
            store.window.ended(call, store.now_ms, failed=what == "fail")
        store.look()
    # Calls that still hang do not last longer than this: a store has a deadline for each.
    for call in list(store.window._in_flight):
        store.window.abandoned(call, store.now_ms)
    for _ in range(60):
        store.calls(1, every_ms=990)
        store.look()
    assert store.state is HEALTHY
    assert not store.window.is_in_doubt(store.now_ms)


@given(STEPS)
def test_failing_store_is_unavailable_within_seconds(
    steps: list[tuple[str, int]],
) -> None:
    store = Store()
    for what, ms in steps:
        store.calls(1, ms=ms, failed=what == "fail")
        store.look()
    # A run of successes that is just being believed is believed; what comes then is seen.
    for _ in range(5):
        store.calls(1, failed=True, every_ms=990)
        store.look()
    assert store.state is UNAVAILABLE
