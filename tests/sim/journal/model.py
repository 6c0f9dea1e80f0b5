"""The model: every step of everybody, and the walk through all states of a scope."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.journal import leading, pursuing
from tests.sim.journal.bucket import ViolationError, check, replayed
from tests.sim.journal.mistakes import Mistake
from tests.sim.journal.states import Kept, Object, Scope, State, first_state


class Walk(NamedTuple):
    """The result of a walk: the states, and the first broken promise with the way there."""

    states: int
    violation: str | None
    way: tuple[str, ...]


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[leading.Step]:
    """All that may happen next, with what it is."""
    yield from _lands(state)
    yield from leading.steps(state, scope, mistake)
    yield from pursuing.steps(state, mistake)
    if scope.reads_elsewhere:
        yield from _reads(state, mistake)


def _lands(state: State) -> Iterator[leading.Step]:
    """A request lands late, where nothing lies: puts are conditional."""
    for one in state.flying:
        if isinstance(one, Object):
            if not any(not each.is_sealed and each[:2] == one[:2] for each in state.objects):
                yield f"late, {one} lands", state._replace(objects=state.objects | {one})
            continue
        journal, sequence, cell = one
        if state.journals[journal][sequence] is None:
            yield (
                f"late, {cell} lands at {journal}/{sequence}",
                leading.with_cell(state, journal, sequence, cell),
            )


def _reads(state: State, mistake: Mistake | None) -> Iterator[leading.Step]:
    """Another broker follows partition 0: it reads the record, then entries up to the progress."""
    if state.reader != state.records[0]:
        yield "a reader elsewhere reads the record", state._replace(reader=state.records[0])
    record = state.reader
    if record is None:
        return
    log: tuple[Kept, ...] | None = record.log
    if record.leader is not None:
        trusts = mistake is Mistake.SKIP_HOLES
        asked = state._replace(records=(record, *state.records[1:])) if trusts else state
        log = replayed(asked, 0, record, state.progress[record.leader] + 1)
    if log is None:
        return
    told = state.told | {(0, base, one.value) for base, one in enumerate(log)}
    if told != state.told:
        yield f"a reader elsewhere reads {[one.value for one in log]}", state._replace(told=told)


def walk(scope: Scope, mistake: Mistake | None = None, limit: int = 6_000_000) -> Walk:
    """Visit every state, nearest first, until a promise is broken. Raises `ValueError` past `limit` states."""
    first = first_state(scope)
    seen: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        try:
            check(state, mistake)
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
    """A state from which the partitions can never again all be led by a journal that goes on; None: there is none."""
    before: dict[State, list[State]] = {first_state(scope): []}
    queue = deque(before)
    while queue:
        state = queue.popleft()
        for _, after in steps(state, scope, None):
            if after not in before:
                before[after] = []
                queue.append(after)
            before[after].append(state)
    living = deque(state for state in before if _is_led(state))
    lives = set(living)
    while living:
        for state in before[living.popleft()]:
            if state not in lives:
                lives.add(state)
                living.append(state)
    return next((state for state in before if state not in lives), None)


def _is_led(state: State) -> bool:
    """True if every partition has a leader whose journal goes on, or none goes on: brokers begin anew."""
    if None not in state.ended:
        return True
    return all(
        record.leader is not None
        and state.ended[record.leader] is None
        and state.brokers[record.leader].leads[partition] is not None
        for partition, record in enumerate(state.records)
    )


def _way(seen: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    taken = []
    while (before := seen[state]) is not None:
        state, what = before
        taken.append(what)
    return tuple(reversed(taken))
