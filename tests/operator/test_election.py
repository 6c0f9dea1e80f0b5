"""At most one candidate leads at any time, whatever is slow, late or lost; and soon somebody does."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.operator.leading.election import (
    DEADLINE_SEC,
    DURATION_SEC,
    RETRY_SEC,
    Election,
    LeaseState,
    Write,
)
from tests.support.nightly import by_day


@dataclass
class LeaseObject:
    """The API server's copy."""

    held: LeaseState | None = None
    _version: int = field(default=0)

    def write(self, write: Write) -> bool:
        if (self.held.version if self.held else None) != write.version:
            return False
        self._version += 1
        self.held = LeaseState(
            holder=write.holder,
            duration_sec=DURATION_SEC,
            transitions=write.transitions,
            version=str(self._version),
        )
        return True


def attempt(candidate: Election, lease: LeaseObject, now: float) -> None:
    write = candidate.look(lease.held, now)
    if write is not None and lease.write(write):
        candidate.written(now)


def test_the_first_one_leads_and_the_second_waits() -> None:
    lease, first, second = LeaseObject(), Election("a"), Election("b")
    for now in range(0, 100, 2):
        attempt(first, lease, now)
        attempt(second, lease, now)
        assert (first.leads(now), second.leads(now)) == (True, False)
    assert lease.held is not None
    assert lease.held.transitions == 0


def test_election_passes_on_only_after_the_owner_is_gone() -> None:
    lease, first, second = LeaseObject(), Election("a"), Election("b")
    attempt(first, lease, 0)
    now = 1.0
    while not second.leads(now):
        attempt(second, lease, now)
        now += RETRY_SEC
        assert now < 1 + DURATION_SEC + 3 * RETRY_SEC
    assert now >= 1 + DURATION_SEC
    assert not first.leads(now)


def test_what_was_given_back_is_taken_at_once() -> None:
    lease, first, second = LeaseObject(), Election("a"), Election("b")
    attempt(first, lease, 0)
    write = first.resign(lease.held)
    assert write is not None
    assert lease.write(write)
    assert not first.leads(0)
    attempt(second, lease, 1)
    assert second.leads(1)


def test_sleeper_that_lost_the_election_releases_nothing() -> None:
    lease, first, second = LeaseObject(), Election("a"), Election("b")
    attempt(first, lease, 0)
    attempt(second, lease, 1)
    attempt(second, lease, 1 + DURATION_SEC)
    assert second.leads(1 + DURATION_SEC)
    assert first.resign(lease.held) is None


@settings(max_examples=by_day(40, by_night=3_000))
@given(st.integers(0, 2**32))
def test_never_two_at_a_time(seed: int) -> None:
    """Reads are old, writes arrive late or their answers do, candidates sleep; one clock for all who look."""
    rng = random.Random(seed)
    lease = LeaseObject()
    candidates = [Election(name) for name in "abc"]
    asleep = [0.0, 0.0, 0.0]
    begun: list[tuple[float, float, int, Write]] = []  # arrives, begun, who, what
    answers: list[tuple[float, float, int]] = []
    now = 0.0
    for _ in range(400):
        now += rng.uniform(0, 1.0)
        for entry in [one for one in begun if one[0] <= now]:
            begun.remove(entry)
            if lease.write(entry[3]) and rng.random() < 0.8:
                answers.append((now + rng.expovariate(1), entry[1], entry[2]))
        for answer in [one for one in answers if one[0] <= now]:
            answers.remove(answer)
            candidates[answer[2]].written(answer[1])
        who = rng.randrange(3)
        if asleep[who] <= now:
            write = candidates[who].look(lease.held, now)
            if write is not None:
                begun.append((now + rng.expovariate(0.5), now, who, write))
            if rng.random() < 0.05:
                asleep[who] = now + rng.uniform(0, 3 * DURATION_SEC)
        assert sum(one.leads(now) for one in candidates) <= 1


@pytest.mark.parametrize("now", [0.0, DEADLINE_SEC - 0.1])
def test_a_leader_stops_before_others_may_begin(now: float) -> None:
    lease, only = LeaseObject(), Election("a")
    attempt(only, lease, 0)
    assert only.leads(now)
    assert not only.leads(DEADLINE_SEC)
    assert DEADLINE_SEC < DURATION_SEC
