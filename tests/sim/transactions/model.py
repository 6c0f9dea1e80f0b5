"""The model: every step of everybody, and the walk through all states of a scope."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.transactions import clients, coordinating, grouping, leading
from tests.sim.transactions.checks import ViolationError, check
from tests.sim.transactions.coordinating import IDLE, Step
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import Scope, State, first_state


class Walk(NamedTuple):
    """The result of a walk: the states, and the first broken promise with the way there."""

    states: int
    violation: str | None
    way: tuple[str, ...]


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """All that may happen next, with what it is."""
    yield from clients.steps(state, scope)
    yield from coordinating.steps(state, scope, mistake)
    yield from leading.steps(state, scope, mistake)
    if scope.group:
        yield from grouping.steps(state, scope, mistake)


def walk(scope: Scope, mistake: Mistake | None = None, limit: int = 6_000_000) -> Walk:
    """Visit every state, nearest first, until a promise is broken. Raises `ValueError` past `limit` states."""
    first = first_state(scope)
    seen: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        try:
            check(state, scope)
            following = list(steps(state, scope, mistake))
        except ViolationError as violation:
            return Walk(len(seen), str(violation), _way(seen, state))
        for what, after in following:
            if after not in seen:
                seen[after] = (state, what)
                queue.append(after)
        if len(seen) > limit:
            raise ValueError(f"{scope} has more than {limit} states")
    return Walk(len(seen), None, ())


def stuck(scope: Scope) -> State | None:
    """A state from which the transaction is never complete, or a marker key stays; None: there is none."""
    before: dict[State, list[State]] = {first_state(scope): []}
    queue = deque(before)
    while queue:
        state = queue.popleft()
        for _, after in steps(state, scope, None):
            if after not in before:
                before[after] = []
                queue.append(after)
            before[after].append(state)
    living = deque(state for state in before if _is_at_rest(state))
    lives = set(living)
    while living:
        for state in before[living.popleft()]:
            if state not in lives:
                lives.add(state)
                living.append(state)
    return next((state for state in before if state not in lives), None)


def _is_at_rest(state: State) -> bool:
    """Everything that was begun is over, or its time is still to end."""
    markers = [partition.marker for partition in state.partitions] + [state.group.marker]
    return state.record.value.state in IDLE and not any(markers)


def _way(seen: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    taken = []
    while (before := seen[state]) is not None:
        state, what = before
        taken.append(what)
    return tuple(reversed(taken))
