"""The way from one broker to one store, on which calls are delayed, lost, repeated, and arrive long after."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafscale.errors import StoreError, StoreIndeterminateError, StoreUnavailableError
from tests.sim.process_loop import WORLD
from tests.sim.trace import Trace

Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True)
class Conditions:
    """Troubles of a link. Times in seconds.

    `fault_rate`: the share of calls that go wrong, `break_rate`: of a watch's events that it breaks at. `turn_sec`:
    answers arrive at multiples of it, so that several come in one turn of the event loop; 0: whenever they do.
    """

    fault_rate: float = 0.0
    longest_delay: float = 0.03
    latest_effect: float = 5.0
    timeout: float = 1.5
    break_rate: float = 0.0
    turn_sec: float = 0.0


class Link:
    """Decides by its randomness the outcome of each call. Calls overtake each other."""

    def __init__(self, name: str, rng: random.Random, conditions: Conditions, trace: Trace) -> None:
        self.name = name
        self.rng = rng
        self.conditions = conditions
        self.is_cut = False
        self.extra_delay = 0.0
        self.answer_delay = 0.0
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._stuck: list[tuple[str, Callable[[], object]]] = []

    def later(self, delay_sec: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back in the world."""
        when_sec, turn_sec = self._loop.time() + delay_sec, self.conditions.turn_sec
        if turn_sec:
            when_sec = math.ceil(when_sec / turn_sec) * turn_sec
        self._loop.call_at(when_sec, callback, *args, context=WORLD)

    def delay(self) -> float:
        """How long something takes this time."""
        return self.rng.random() * self.conditions.longest_delay

    async def call(
        self, what: str, action: Callable[[], Result], *, is_slow: bool = False, may_repeat: bool = False
    ) -> Result:
        """The result of `action`, which the store does at once. `is_slow`: extra delays are for such calls."""
        reply: asyncio.Future[Result] = self._loop.create_future()
        delay = self.delay() + (self.rng.random() * self.extra_delay if is_slow else 0.0)
        timeout = self.conditions.timeout
        if delay > timeout:
            self._trace.add(self.name, "is late by", delay, what)
            self._fail_later(timeout, reply, f"{what}: no answer")
        if self.rng.random() >= self.conditions.fault_rate:
            self.later(delay, self._arrive, what, action, reply)
        else:
            self._go_wrong(what, action, reply, delay, may_repeat)
        return await reply

    def _go_wrong(
        self,
        what: str,
        action: Callable[[], Any],
        reply: "asyncio.Future[Any]",
        delay: float,
        may_repeat: bool,
    ) -> None:
        timeout = self.conditions.timeout
        match self.rng.randrange(5 if may_repeat else 4):
            case 0:
                self._trace.add(self.name, "is refused", what)
                self.later(delay, _fail, reply, StoreUnavailableError(f"{what}: refused"))
            case 1:
                self._trace.add(self.name, "loses the request", what)
                self._fail_later(timeout, reply, f"{what}: lost on the way there")
            case 2:
                self._trace.add(self.name, "loses the answer", what)
                self.later(delay, self._apply, what, action)
                self._fail_later(timeout, reply, f"{what}: lost on the way back")
            case 3:
                delay += self.rng.random() * self.conditions.latest_effect
                self._trace.add(self.name, "is late by", delay, what)
                self.later(delay, self._arrive, what, action, reply)
                self._fail_later(timeout, reply, f"{what}: still in flight")
            case _:
                again = delay + self.rng.random() * self.conditions.latest_effect
                self._trace.add(self.name, "says twice, again after", again, what)
                self.later(delay, self._arrive, what, action, reply)
                self.later(again, self._apply, what, action)

    def _arrive(self, what: str, action: Callable[[], Any], reply: "asyncio.Future[Any]") -> None:
        if self.is_cut:
            self._trace.add(self.name, "is cut", what)
            if self.rng.random() < 0.5:
                self._stuck.append((what, action))
            self._fail_later(self.conditions.timeout, reply, f"{what}: no way there")
            return
        outcome = self._apply(what, action)
        self.later(self.delay() + self.answer_delay, self._answer, what, reply, outcome)

    def _apply(self, what: str, action: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return action(), None
        except StoreError as problem:
            return None, problem

    def _answer(self, what: str, reply: "asyncio.Future[Any]", outcome: tuple[Any, Exception | None]) -> None:
        if self.is_cut:
            self._fail_later(self.conditions.timeout, reply, f"{what}: no way back")
        elif not reply.done():
            result, problem = outcome
            if problem is None:
                reply.set_result(result)
            else:
                _fail(reply, problem)

    def _fail_later(self, delay_sec: float, reply: "asyncio.Future[Any]", message: str) -> None:
        self.later(delay_sec, _fail, reply, StoreIndeterminateError(message))

    def cut(self) -> None:
        """Nothing gets through until `mend`. What is sent meanwhile is lost, or arrives then."""
        self.is_cut = True

    def mend(self) -> None:
        """It is as good as it was."""
        self.is_cut = False
        stuck, self._stuck = self._stuck, []
        for what, action in stuck:
            self._trace.add(self.name, "was stuck", what)
            self.later(self.delay(), self._apply, what, action)


def _fail(reply: "asyncio.Future[Any]", problem: Exception) -> None:
    if not reply.done():
        reply.set_exception(problem)
        reply.exception()  # Who asked may be dead: that is nobody's mistake.
