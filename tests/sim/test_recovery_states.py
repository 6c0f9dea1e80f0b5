"""A rebuild from the bucket, tried in every state that publishing reaches in a small scope, and on long walks.

`make test` takes few walks of each kind, `make nightly` many.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kafscale.log.reading.segment_inspection import InspectedSegment
from kafscale.tools.recovery.plan import KnownPartition, PartitionPlan
from tests.sim.publication_states import (
    Scope,
    Snapshot,
    State,
    Stored,
    broken_promise,
    first_state,
    plan_of,
    steps,
)
from tests.support.nightly import by_day

WALKS = by_day(10, by_night=10_000)
STEPS = 100


Plans = dict[tuple[frozenset[Stored], Snapshot | None, KnownPartition | None], PartitionPlan]


def check(state: State, scope: Scope, plans: Plans) -> None:
    """The rebuild of this state's bucket keeps its promises."""
    where = (state.bucket, state.checkpoint, state.backup)
    if where not in plans:
        plans[where] = plan_of(*where)
    problem = broken_promise(state, plans[where], batches_are_unique=not scope.retires)
    assert problem is None, f"{problem}\n{state}\n{plans[where]}"


LEADERS = Scope(epochs=3, attempts=2, lengths=(1, 2, 1), offsets=6)
IN_FLIGHT = Scope(epochs=2, attempts=3, lengths=(1, 2, 1), offsets=6)
GIVEN_UP = Scope(epochs=1, attempts=3, lengths=(1, 2), offsets=7, gives_up=True)
MERGES = Scope(
    epochs=2, attempts=2, lengths=(1, 2), offsets=6, gives_up=True, collects_garbage=True, merges=True
)
BACKUPS = Scope(epochs=2, attempts=2, lengths=(1, 2), offsets=5, backs_up=True, retires=True)


def visit_all(scope: Scope) -> tuple[int, Plans]:
    """Check every state; returns how many there are, and the plans of all buckets."""
    first = first_state(2)
    seen, queue = {first}, deque([first])
    plans: Plans = {}
    while queue:
        state = queue.popleft()
        check(state, scope, plans)
        for following in steps(state, scope):
            if following not in seen:
                seen.add(following)
                queue.append(following)
    return len(seen), plans


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(LEADERS, id="three leaders"),
        pytest.param(IN_FLIGHT, id="two in flight", marks=pytest.mark.nightly),
        pytest.param(GIVEN_UP, id="flushes given up"),
        pytest.param(MERGES, id="merges and garbage"),
        pytest.param(BACKUPS, id="backups of any moment"),
    ],
)
def test_in_every_state_a_rebuild_keeps_what_was_published(scope: Scope) -> None:
    states, plans = visit_all(scope)
    assert states > 5_000
    assert any(plan.dropped for plan in plans.values())


def lower_epoch(earlier: InspectedSegment, later: InspectedSegment) -> InspectedSegment:
    return max(earlier, later, key=lambda segment: segment.leader_epoch)


def higher_base(earlier: InspectedSegment, later: InspectedSegment) -> InspectedSegment:
    return later if earlier.leader_epoch == later.leader_epoch else earlier


def too_much(
    kept: tuple[InspectedSegment, ...], log_start_offset: int
) -> tuple[tuple[InspectedSegment, ...], tuple[()]]:
    return tuple(one for one in kept if one.base_offset > log_start_offset), ()


@pytest.mark.parametrize(
    ("target", "bug", "scope"),
    [
        pytest.param("recovery.overlaps._loser", lower_epoch, LEADERS, id="the lower epoch wins"),
        pytest.param("recovery.overlaps._loser", higher_base, GIVEN_UP, id="the lower base offset wins"),
        pytest.param("recovery.plan.repeated", lambda kept: {}, LEADERS, id="repeated batches are kept"),
        pytest.param("recovery.plan._without_deleted", too_much, BACKUPS, id="more is deleted than was"),
    ],
)
def test_a_bug_that_is_put_in_on_purpose_is_found(
    target: str, bug: Callable[..., Any], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"kafscale.tools.{target}", bug)
    with pytest.raises(AssertionError, match=r"are lost|there twice"):
        visit_all(scope)


def weight(before: State, after: State) -> float:
    """Makes rare what ends things, so that a walk comes to publish, merge and fail in many orders."""
    if after.record.epoch > before.record.epoch:
        return 0.1
    if sum(b.is_on for b in after.brokers) < sum(b.is_on for b in before.brokers):
        return 0.05
    if after.in_flight < before.in_flight:
        return 0.05
    if after.bucket < before.bucket:
        return 0.3
    return 1.0


def walk(seed: int, scope: Scope) -> State:
    chance = random.Random(seed)
    state = first_state(3)
    plans: Plans = {}
    for _ in range(STEPS):
        following = list(steps(state, scope))
        if not following:
            break
        [state] = chance.choices(following, [weight(state, after) for after in following])
        check(state, scope, plans)
    return state


LONG = Scope(epochs=6, attempts=12, lengths=(1, 2, 1, 3, 1, 2), offsets=40, merges=True, checkpoints=True)
WALKED = {
    "leaders and leftovers": Scope(
        epochs=8, attempts=12, lengths=(1, 1, 2, 3, 1, 2), offsets=40, gives_up=True
    ),
    "checkpoints, merges and garbage": LONG._replace(collects_garbage=True),
    "rebuilds between": LONG._replace(loses_metadata=True),
    "rebuilds with backups of any age": LONG._replace(loses_metadata=True, backs_up=True),
    # An upload that lands where retention made room may be taken for what was there (docs/recover.md).
    "retention": LONG._replace(collects_garbage=True, retires=True, backs_up=True),
}


@pytest.mark.timeout(900 + WALKS)
@pytest.mark.parametrize("name", WALKED)
def test_on_long_walks_every_rebuild_keeps_what_was_published(name: str) -> None:
    first_seed = random.randrange(10**9)
    for seed in range(first_seed, first_seed + WALKS):
        print(f"walk of seed {seed}")
        walk(seed, WALKED[name])
