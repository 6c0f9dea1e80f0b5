"""A second request beside a slow one: when it is sent, how often, and the outcome of either."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafscale.objects.hedging import (
    FIRST_DELAY_SEC,
    LEAST_DELAY_SEC,
    LOSER_SEC,
    MOST_DELAY_SEC,
    MOST_REQUESTS,
    Hedge,
    hedged,
)
from kafscale.tasks.owner import TaskOwner
from tests.support.virtual_time import run_virtually
from tests.support.watched_loop import in_virtual_time, watched

ALLOWANCE = 10
"""So many second requests may be sent before any has been earned."""

SHARES = st.floats(0.01, 0.5)


# --- the delay and the allowance


@given(share=SHARES, was_late=st.lists(st.booleans(), max_size=60), times=st.integers(1, 50))
def test_the_delay_stays_within_its_bounds(share: float, was_late: list[bool], times: int) -> None:
    hedge = Hedge(share)
    for one in was_late * times:
        before = hedge.delay_sec
        hedge.observe(was_late=one)
        assert LEAST_DELAY_SEC <= hedge.delay_sec <= MOST_DELAY_SEC
        assert hedge.delay_sec >= before if one else hedge.delay_sec <= before


@pytest.mark.parametrize(("was_late", "bound"), [(True, MOST_DELAY_SEC), (False, LEAST_DELAY_SEC)])
def test_the_delay_reaches_its_bounds_and_comes_back(was_late: bool, bound: float) -> None:
    hedge = Hedge(0.1)
    for _ in range(2000):
        hedge.observe(was_late=was_late)
    assert hedge.delay_sec == bound
    hedge.observe(was_late=not was_late)
    assert hedge.delay_sec != bound


@given(
    share=st.floats(0.05, 0.3),
    median_sec=st.floats(0.02, 0.3),
    sigma=st.floats(0.2, 0.6),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_given_share_of_requests_is_late_once_delay_is_learned(
    share: float, median_sec: float, sigma: float, seed: int
) -> None:
    hedge, rng = Hedge(share), random.Random(seed)

    def late_share(requests: int) -> float:
        late = 0
        for _ in range(requests):
            was_late = median_sec * rng.lognormvariate(0, sigma) > hedge.delay_sec
            hedge.observe(was_late=was_late)
            late += was_late
        return late / requests

    late_share(3000)
    assert late_share(10_000) == pytest.approx(share, rel=0.1)


@given(share=SHARES, requests=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=300))
@example(share=0.1, requests=[(True, 1)] * 1000)
def test_second_requests_are_few_also_when_everything_is_late(
    share: float, requests: list[tuple[bool, int]]
) -> None:
    hedge, taken = Hedge(share), 0
    for observed, (was_late, wanted) in enumerate(requests, 1):
        hedge.observe(was_late=was_late)
        taken += sum(hedge.take() for _ in range(wanted))
        assert taken <= ALLOWANCE + observed * share * 1.2 + 1e-6


def test_a_quiet_time_saves_up_no_more_than_the_allowance() -> None:
    hedge = Hedge(0.1)
    for _ in range(10_000):
        hedge.observe(was_late=False)
    assert sum(hedge.take() for _ in range(100)) == ALLOWANCE


def test_share_is_sent_twice_while_everything_is_late() -> None:
    hedge = Hedge(0.1)
    taken = 0
    for _ in range(1000):
        hedge.observe(was_late=True)
        taken += hedge.take()
    assert 120 <= taken <= ALLOWANCE + 120


# --- two requests


class FailedError(Exception):
    """An attempt's error."""


class SpoiltError(Exception):
    """An attempt's error when it is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one attempt goes. `cancellation_sec`: how long it goes on when it is cancelled."""

    takes_sec: float
    fails: bool = False
    cancellation_sec: float = 0.0
    fails_when_cancelled: bool = False


@dataclass
class Attempts:
    """Goes the given courses, one after the other."""

    courses: list[Course]
    began: list[float] = field(default_factory=list)
    running: int = 0
    cancelled: list[int] = field(default_factory=list)

    async def __call__(self) -> int:
        number = len(self.began)
        course = self.courses[number]
        self.began.append(asyncio.get_running_loop().time())
        self.running += 1
        try:
            await asyncio.sleep(course.takes_sec)
            if course.fails:
                raise FailedError(number)
            return number
        except asyncio.CancelledError:
            self.cancelled.append(number)
            await asyncio.sleep(course.cancellation_sec)
            if course.fails_when_cancelled:
                raise SpoiltError(number) from None
            raise
        finally:
            self.running -= 1


def elapsed_sec() -> float:
    return asyncio.get_running_loop().time()


SLOW = Course(takes_sec=60)
QUICK = Course(takes_sec=0.02)
LATE_SEC = FIRST_DELAY_SEC + 0.01


@in_virtual_time
async def test_a_first_request_that_is_quick_is_the_only_one() -> None:
    hedge, attempts = Hedge(0.1), Attempts([QUICK])
    assert await hedged(attempts, hedge, TaskOwner()) == 0
    assert (attempts.began, attempts.cancelled) == ([0.0], [])
    assert hedge.delay_sec < FIRST_DELAY_SEC


@in_virtual_time
async def test_when_the_second_wins_the_first_has_a_second_to_end() -> None:
    for first_sec, is_cancelled in ((LATE_SEC + LOSER_SEC, False), (60, True)):
        began_sec, requests = elapsed_sec(), TaskOwner()
        hedge, attempts = Hedge(0.1), Attempts([Course(takes_sec=first_sec), QUICK])
        assert await hedged(attempts, hedge, requests) == 1
        assert attempts.began == pytest.approx([began_sec, began_sec + FIRST_DELAY_SEC])
        assert elapsed_sec() - began_sec == pytest.approx(FIRST_DELAY_SEC + 0.02)
        assert hedge.delay_sec > FIRST_DELAY_SEC
        await requests.wait()
        assert elapsed_sec() - began_sec == pytest.approx(
            FIRST_DELAY_SEC + 0.02 + LOSER_SEC if is_cancelled else first_sec
        )
        assert attempts.cancelled == ([0] if is_cancelled else [])
        assert attempts.running == 0


@in_virtual_time
async def test_when_the_first_wins_after_all_so_has_the_second() -> None:
    requests, attempts = TaskOwner(), Attempts([Course(takes_sec=LATE_SEC), SLOW])
    assert await hedged(attempts, Hedge(0.1), requests) == 0
    assert (attempts.cancelled, attempts.running) == ([], 1)
    await requests.wait()
    assert elapsed_sec() == pytest.approx(LATE_SEC + LOSER_SEC)
    assert (attempts.cancelled, attempts.running) == ([1], 0)


@in_virtual_time
async def test_while_many_are_in_flight_it_is_cancelled_at_once() -> None:
    requests = TaskOwner()
    for _ in range(MOST_REQUESTS):
        requests.spawn(asyncio.sleep(60), "another request")
    attempts = Attempts([SLOW, QUICK])
    assert await hedged(attempts, Hedge(0.1), requests) == 1
    await asyncio.sleep(0.001)
    assert (attempts.cancelled, attempts.running) == ([0], 0)
    await requests.close()


@in_virtual_time
async def test_owner_ends_the_request_that_was_not_needed() -> None:
    requests, attempts = TaskOwner(), Attempts([SLOW, Course(takes_sec=0)])
    assert await hedged(attempts, Hedge(0.1), requests) == 1
    await requests.close()
    assert (attempts.cancelled, attempts.running) == ([0], 0)
    assert elapsed_sec() == pytest.approx(FIRST_DELAY_SEC)


@in_virtual_time
async def test_with_a_share_of_one_both_are_sent_at_once_every_time() -> None:
    hedge, requests = Hedge(1.0), TaskOwner()
    for number in range(3 * ALLOWANCE):
        began_sec = elapsed_sec()
        attempts = Attempts([Course(takes_sec=0.05), Course(takes_sec=0.02 + number % 2)])
        assert await hedged(attempts, hedge, requests) == (number + 1) % 2
        assert attempts.began == [began_sec, began_sec]
    await requests.close()


@in_virtual_time
async def test_when_both_fail_the_failure_that_came_last_counts() -> None:
    fails_late = Course(takes_sec=LATE_SEC, fails=True)
    for courses, last in (
        ([fails_late, Course(takes_sec=5, fails=True)], 1),
        ([Course(takes_sec=5, fails=True), fails_late], 0),
    ):
        attempts = Attempts(courses)
        with pytest.raises(FailedError) as failure:
            await hedged(attempts, Hedge(0.1), TaskOwner())
        assert failure.value.args == (last,)
        assert len(attempts.began) == 2


@in_virtual_time
async def test_first_that_fails_early_gets_no_second() -> None:
    """While the store refuses connections the delay would shrink to nothing."""
    hedge, attempts = Hedge(0.1), Attempts([Course(takes_sec=0.001, fails=True)])
    with pytest.raises(FailedError):
        await hedged(attempts, hedge, TaskOwner())
    assert len(attempts.began) == 1
    assert hedge.delay_sec == FIRST_DELAY_SEC


@pytest.mark.parametrize("failing", [0, 1])
@in_virtual_time
async def test_when_one_of_two_fails_the_others_result_counts(failing: int) -> None:
    courses = [Course(takes_sec=5), Course(takes_sec=5)]
    courses[failing] = Course(takes_sec=LATE_SEC, fails=True)
    attempts = Attempts(courses)
    assert await hedged(attempts, Hedge(0.1), TaskOwner()) == 1 - failing
    assert (len(attempts.began), attempts.cancelled) == (2, [])


@in_virtual_time
async def test_without_allowance_a_late_request_is_waited_for() -> None:
    hedge = Hedge(0.01)
    while hedge.take():
        pass
    attempts = Attempts([SLOW])
    assert await hedged(attempts, hedge, TaskOwner()) == 0
    assert elapsed_sec() == pytest.approx(60)


@pytest.mark.parametrize("after_sec", [0.05, FIRST_DELAY_SEC + 0.05])
@pytest.mark.parametrize("fails_when_cancelled", [False, True])
@in_virtual_time
async def test_a_cancelled_caller_leaves_no_request_behind(
    after_sec: float, fails_when_cancelled: bool
) -> None:
    course = Course(takes_sec=60, cancellation_sec=2, fails_when_cancelled=fails_when_cancelled)
    attempts = Attempts([course, course])
    waiting = asyncio.create_task(hedged(attempts, Hedge(0.1), TaskOwner()))
    await asyncio.sleep(after_sec)
    waiting.cancel()
    await asyncio.sleep(1)
    assert attempts.running == len(attempts.began) == (1 if after_sec < FIRST_DELAY_SEC else 2)
    waiting.cancel()  # again, as it waits for them
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert attempts.running == 0


TIMES_SEC = st.sampled_from([0.0, 0.05, FIRST_DELAY_SEC, 0.15, 0.2, 0.3])
COURSES = st.builds(
    Course,
    takes_sec=TIMES_SEC,
    fails=st.booleans(),
    cancellation_sec=st.sampled_from([0.0, 0.05]),
    fails_when_cancelled=st.booleans(),
)


@given(
    courses=st.tuples(COURSES, COURSES),
    cancelled_sec=st.none() | TIMES_SEC,
    share=st.sampled_from([0.1, 1.0]),
)
def test_hedging_leaves_no_task_and_no_unheard_failure(
    courses: tuple[Course, Course], cancelled_sec: float | None, share: float
) -> None:
    async def play() -> None:
        attempts, requests = Attempts(list(courses)), TaskOwner()
        waiting = asyncio.create_task(hedged(attempts, Hedge(share), requests))
        if cancelled_sec is not None:
            asyncio.get_running_loop().call_later(cancelled_sec, waiting.cancel)
        await asyncio.wait([waiting])
        assert attempts.running == len(requests)
        began = courses[: len(attempts.began)]
        if waiting.cancelled():
            assert cancelled_sec is not None
            assert attempts.running == 0
        elif waiting.exception() is not None:
            assert isinstance(waiting.exception(), FailedError)
            assert all(course.fails for course in began)
            assert attempts.running == 0
        else:
            assert not began[waiting.result()].fails
        await requests.close()
        assert attempts.running == 0

    run_virtually(watched(play()))
