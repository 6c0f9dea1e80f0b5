"""A group whose members join, leave, are killed and are stopped for a while, all under a seed."""

import itertools
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tests.support.waiting import PATIENCE_SEC, wait_until

PROGRESS_TIMEOUT_S = PATIENCE_SEC


class ChaosMember(Protocol):
    """A member in a process of its own. A name is used once: a member that returns is another one."""

    @property
    def name(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def leave(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def kill9(self) -> None: ...
    def close(self) -> None: ...
    def wait_exit(self, timeout_s: float) -> int: ...
    def clean_exit_code(self) -> int: ...
    def log_tail(self) -> str: ...


Member = TypeVar("Member", bound=ChaosMember)


class MemberChaos(Generic[Member]):
    """Base of the chaos of each kind of group.

    `members`: the fewest and the most that run at a time, not counting stopped ones. `pause_s`: how long one is
    stopped. `troubles`: what else is done, by name.
    """

    def __init__(
        self,
        folder: Path,
        generator: random.Random,
        *,
        members: tuple[int, int],
        pause_s: tuple[float, float],
        troubles: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self.all_members: list[Member] = []
        self.done: dict[str, int] = {}  # how often each kind of trouble happened
        self.pauses: dict[
            str, list[tuple[float, float]]
        ] = {}  # of each member, as times of the monotonic clock
        self._folder = folder
        self._generator = generator
        self._fewest, self._most = members
        self._pause_s = pause_s
        self._troubles = dict(troubles or {})
        self._numbers = itertools.count(1)
        self._running: list[Member] = []
        self._paused: list[tuple[float, float, Member]] = []  # since when, until when
        self._actions = ["join", "leave", "kill", "pause", *self._troubles]
        self._deck: list[str] = []
        self._began_s = time.monotonic()

    # --- what a kind of group has of its own

    def new_member(self, number: int) -> Member:
        """The member of that number, which is not started."""
        raise NotImplementedError

    def has_begun(self, member: Member) -> bool:
        """True once it is a member that has work."""
        raise NotImplementedError

    def has_progressed(self) -> bool:
        """True if a member has processed something since the last call."""
        raise NotImplementedError

    def may_leave(self, member: Member) -> bool:
        """False while its client would not end in order."""
        return True

    def check_left(self, member: Member) -> None:
        """The member has ended. Raises AssertionError if it did not do so in order."""

    def check_servers(self) -> None:
        """Raises AssertionError if a broker has ended by itself."""

    # --- the run

    def start(self, count: int | None = None) -> None:
        """Start so many members, or as few as there may be; wait until all have work."""
        for _ in range(self._fewest if count is None else count):
            self._join()
        wait_until(self._all_have_begun, "every member has work", PROGRESS_TIMEOUT_S)

    def run(self, seconds: float, goes_on: Callable[[], bool] = lambda: False) -> None:
        """Cause one trouble after the other for that long, and longer until each kind has happened.

        A pause is done when it was as long as planned. `goes_on`: there is a reason to continue.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or not set(self._actions) <= self.done.keys() or goes_on():
            if self._generator.random() < 0.6:
                self.wait_for_progress()
            time.sleep(self._generator.uniform(0.0, 0.5))  # the random moment
            self._resume_due()
            self._check_alive()
            self._act(self._next_action())

    def wait_for_progress(self) -> None:
        """Wait until a member processes a new record."""
        self.has_progressed()
        wait_until(self._progressed, "a record is processed", PROGRESS_TIMEOUT_S)

    def calm(self) -> None:
        """Resume stopped members: no further trouble for the group."""
        self._resume_due(everybody=True)

    def stop(self) -> None:
        """Let all leave that may."""
        self._check_alive()
        leaving = [member for member in self._running if self.may_leave(member)]
        for member in leaving:
            member.leave()
        for member in leaving:
            self._left(member)
            self._running.remove(member)
        for member in self._running:
            member.kill9()
        self._running.clear()

    def close(self) -> None:
        for member in self.all_members:
            member.close()

    def _act(self, action: str) -> None:
        match action:
            case "join":
                self._join()
            case "leave":
                member = self._pick()
                self._say(f"{member.name} leaves")
                wait_until(partial(self.may_leave, member), f"{member.name} can leave", PROGRESS_TIMEOUT_S)
                member.leave()
                self._left(member)
                self._running.remove(member)
            case "kill":
                member = self._pick()
                self._say(f"{member.name} is killed")
                member.kill9()
                self._running.remove(member)
            case "pause":
                member = self._pick()
                seconds = self._generator.uniform(*self._pause_s)
                self._say(f"{member.name} is stopped for {seconds:.1f} s")
                began_s = time.monotonic()
                member.pause()
                self._running.remove(member)
                self._paused.append((began_s, began_s + seconds, member))
            case _:
                self._say(action)
                self._troubles[action]()
        if action != "pause":
            self._count(action)

    def _count(self, action: str) -> None:
        self.done[action] = self.done.get(action, 0) + 1

    def _next_action(self) -> str:
        """All kinds equally often; but one joins if too few are left, and one leaves if there are many."""
        count = len(self._running)
        if count < self._fewest:
            return "join"
        if not self._deck:
            self._deck = self._generator.sample(self._actions, len(self._actions))
        action = self._deck.pop()
        return "leave" if action == "join" and count >= self._most else action

    def _join(self) -> None:
        member = self.new_member(next(self._numbers))
        self._say(f"{member.name} joins")
        self.all_members.append(member)
        self._running.append(member)
        member.start()

    def _pick(self) -> Member:
        return self._generator.choice(self._running)

    def _left(self, member: Member) -> None:
        code = member.wait_exit(PROGRESS_TIMEOUT_S)
        assert code == member.clean_exit_code(), (
            f"{member.name} ended with exit code {code}\n{member.log_tail()}"
        )
        self.check_left(member)

    def _resume_due(self, *, everybody: bool = False) -> None:
        now = time.monotonic()
        for one in [one for one in self._paused if everybody or one[1] <= now]:
            began_s, due_s, member = one
            self._say(f"{member.name} goes on")
            member.resume()
            self.pauses.setdefault(member.name, []).append((began_s, time.monotonic()))
            if due_s <= now:
                self._count("pause")
            self._paused.remove(one)
            self._running.append(member)

    def _check_alive(self) -> None:
        self.check_servers()
        for member in self._running:
            assert member.exit_code is None, f"{member.name} ended by itself\n{member.log_tail()}"

    def _all_have_begun(self) -> bool:
        self._check_alive()
        return all(self.has_begun(member) for member in self._running)

    def _progressed(self) -> bool:
        self._check_alive()
        return self.has_progressed()

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.2f} s: {what}", flush=True)
