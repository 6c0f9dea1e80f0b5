"""Raw members that act like a client by themselves: join, sync, send heartbeats, and rejoin on demand."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tests.support.group_wire import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    connect_strictly,
)
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.wire import ConnectionEndedError

PAUSE_SECONDS = 0.05
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: retry
COORDINATOR_CODES = (14, 15, 16)


class Phase(Enum):
    """The member's next step."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An assignment that a member received. Leaders write the generation and their own id into it."""

    generation: int
    leader: str
    member_id: str


def assignment_for(generation: int, leader: str, member_id: str) -> bytes:
    """A leader's assignment for a member; it says for whom and when it was made."""
    return f"{generation}/{leader}/{member_id}".encode()


class Autopilot:
    """A thread that takes a member over, in its current phase.

    `roll` is the group's member ids where this one leads and is still to sync. `given` is all that it got.
    """

    def __init__(
        self, broker: Any, member: Member, phase: Phase = Phase.JOIN, roll: Sequence[str] = ()
    ) -> None:
        self.member = member
        self.given: list[Given] = []
        self.beats = 0  # heartbeats answered without error since its last assignment
        self._broker = broker
        self._phase = phase
        self._roll = list(roll)
        self._failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread without leaving the group. Raises AssertionError on an error that no client should meet."""
        self._stopping.set()
        self._thread.join(PATIENCE_SEC)
        assert not self._thread.is_alive(), "a member did not end"
        self.check()

    def check(self) -> None:
        assert not self._failures, self._failures

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with connect_strictly(self._broker) as self.member.wire:
                    while not self._stopping.is_set():
                        self._step()
            except (OSError, ConnectionEndedError):
                self._stopping.wait(PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001  (a thread's exception would be lost)
                self._failures.append(repr(error))
                return

    def _step(self) -> None:
        match self._phase:
            case Phase.JOIN:
                self._join()
            case Phase.SYNC:
                self._sync()
            case Phase.HEARTBEAT:
                code = self.member.heartbeat()
                if code == NONE:
                    self.beats += 1
                    self._stopping.wait(PAUSE_SECONDS)
                else:
                    self._begin_again(code)

    def _join(self) -> None:
        self.beats = 0
        reply = self.member.join()
        if reply.error_code == NONE:
            self._roll = [one.member_id for one in reply.members]
            self._phase = Phase.SYNC
        elif reply.error_code == MEMBER_ID_REQUIRED:
            self.member.id = reply.member_id
        else:
            self._begin_again(reply.error_code)

    def _sync(self) -> None:
        member = self.member
        leads = {one: assignment_for(member.generation, member.id, one) for one in self._roll}
        reply = member.sync(leads if member.leads else None)
        if reply.error_code != NONE:
            self._begin_again(reply.error_code)
            return
        generation, leader, member_id = bytes(reply.assignment).decode().split("/")
        self.given.append(Given(generation=int(generation), leader=leader, member_id=member_id))
        assert (int(generation), member_id) == (member.generation, member.id), (
            f"member {member.id} of generation {member.generation} was given {bytes(reply.assignment)!r}"
        )
        self._phase = Phase.HEARTBEAT

    def _begin_again(self, code: int) -> None:
        """Like clients: with a new id if the coordinator does not know theirs."""
        if code in COORDINATOR_CODES:
            self._stopping.wait(PAUSE_SECONDS)
            return
        assert code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID), f"error code {code}"
        if code == UNKNOWN_MEMBER_ID:
            self.member.id = ""
        self._phase = Phase.JOIN


def fly(pilots: Iterable[Autopilot], timeout_s: float = PATIENCE_SEC) -> int:
    """Start all, wait until they are one stable generation, stop them, and return that generation.

    Checks that no member received assignments of two leaders of one generation.
    """
    pilots = list(pilots)
    for pilot in pilots:
        pilot.start()
    try:
        wait_until(lambda: _stable_generation(pilots) is not None, "a stable group of all", timeout_s)
    finally:
        for pilot in pilots:
            pilot.stop()
        _check_leaders(pilots)
    return pilots[0].given[-1].generation


def _stable_generation(pilots: Sequence[Autopilot]) -> int | None:
    for pilot in pilots:
        pilot.check()
    if not all(pilot.beats >= 2 and pilot.given for pilot in pilots):
        return None
    generations = {pilot.given[-1].generation for pilot in pilots}
    return generations.pop() if len(generations) == 1 else None


def _check_leaders(pilots: Sequence[Autopilot]) -> None:
    leaders: dict[int, set[str]] = {}
    for pilot in pilots:
        for one in pilot.given:
            leaders.setdefault(one.generation, set()).add(one.leader)
    twice = {generation: names for generation, names in leaders.items() if len(names) > 1}
    assert not twice, f"generations with assignments of several leaders: {twice}"
