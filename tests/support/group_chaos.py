"""A consumer group whose members join, leave, are killed and are stopped for a while, all under a seed."""

import itertools
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.tools import ROOT
from tests.support.apache_kafka import SIGTERM_EXIT_CODE
from tests.support.group_journal import Assigned, Ended, Event, JournalReader, Processed
from tests.support.java import java_command
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

PROGRESS_TIMEOUT_S = PATIENCE_SEC
MAX_POLL_INTERVAL_MS = 30_000
PYTHON_MEMBER = "tests.support.group_member_process"
JAVA_MEMBER = ROOT / "tests/compat/java/JournalMember.java"


class MemberProcess(ServerProcess):
    """One member, with its journal. A name is used once: a member that returns is another one."""

    def __init__(self, name: str, folder: Path, *, client: str, broker: Any, scenario: "Scenario") -> None:
        super().__init__(name, folder)
        self.client = client
        journal = folder / f"{name}.journal"
        self.journal = JournalReader(journal)
        options = [
            "--bootstrap", broker.bootstrap, "--name", name, "--journal", str(journal),
            "--group", scenario.group, "--topic", scenario.topic, "--assignor", scenario.assignor,
            "--session-timeout-ms", str(scenario.session_timeout_ms),
            "--max-poll-interval-ms", str(MAX_POLL_INTERVAL_MS),
        ]  # fmt: skip
        if client == "java":
            self._command = java_command(str(JAVA_MEMBER), *options)
        else:
            self._command = [sys.executable, "-m", PYTHON_MEMBER, "--client", client, *options]

    def clean_exit_code(self) -> int:
        return SIGTERM_EXIT_CODE if self.client == "java" else 0

    def start(self) -> None:
        """Start it without waiting: when it becomes a member is open."""
        self.launch(self._command, clean_environment() | {"PYTHONPATH": str(ROOT)})

    def leave(self) -> None:
        """SIGTERM: it leaves the group and exits."""
        wait_until(self.journal.path.exists, f"{self.name} understands signals")
        self.send_signal(signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The clients that share the topic, and how. `members`: the fewest and the most that run at a time."""

    group: str
    topic: str
    clients: Sequence[str]
    assignor: str
    members: tuple[int, int] = (2, 4)
    session_timeout_ms: int = 1500


class Chaos:
    """Troubles a group. `broker` is one that may be killed, if `kill_broker` allows it."""

    def __init__(
        self, broker: Any, scenario: Scenario, folder: Path, generator: random.Random, *, kill_broker: bool
    ) -> None:
        self.all_members: list[MemberProcess] = []
        self.done: dict[str, int] = {}  # how often each kind of trouble happened
        self._broker = broker
        self._scenario = scenario
        self._folder = folder
        self._generator = generator
        self._numbers = itertools.count(1)
        self._running: list[MemberProcess] = []
        self._paused: list[tuple[float, MemberProcess]] = []  # with the time to go on
        self._actions = ["join", "leave", "kill", "pause", *(["kill broker"] if kill_broker else [])]
        self._deck: list[str] = []
        self._began_s = time.monotonic()

    def start(self) -> None:
        """A member of each client, and as many as the scenario needs at least; wait until all have worked."""
        for _ in range(max(self._scenario.members[0], len(self._scenario.clients))):
            self._join()
        wait_until(lambda: self._all_assigned(), "every member is assigned something", PROGRESS_TIMEOUT_S)

    def run(self, seconds: float) -> None:
        """Cause one trouble after the other for that long, and longer until each kind has happened.

        A pause is done when it was longer than the session timeout.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or not set(self._actions) <= self.done.keys():
            if self._generator.random() < 0.6:
                self.wait_for_progress()
            time.sleep(self._generator.uniform(0.0, 0.5))  # the random moment
            self._resume_due()
            self._check_alive()
            self._act(self._next_action())

    def wait_for_progress(self) -> None:
        """Wait until a member processes a new record."""
        self.events_of_all()
        wait_until(self._processed_something, "a record is processed", PROGRESS_TIMEOUT_S)

    def calm(self) -> None:
        """Resume stopped members: no further trouble for the group."""
        self._resume_due(everybody=True)

    def stop(self) -> None:
        """Let all leave."""
        self._check_alive()
        for member in self._running:
            member.leave()
        for member in self._running:
            self._left(member)
        self._running.clear()

    def close(self) -> None:
        for member in self.all_members:
            member.close()

    def journals(self) -> dict[str, list[Event]]:
        """All journal events: member -> events."""
        self.events_of_all()
        return {member.name: member.journal.events for member in self.all_members}

    def events_of_all(self) -> list[Event]:
        """Read the new events of all journals."""
        return [event for member in self.all_members for event in member.journal.read()]

    def _act(self, action: str) -> None:
        match action:
            case "join":
                self._join()
            case "leave":
                member = self._pick()
                self._say(f"{member.name} leaves")
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
                seconds = self._scenario.session_timeout_ms / 1000 + self._generator.uniform(0.3, 1.0)
                self._say(f"{member.name} is stopped for {seconds:.1f} s")
                member.pause()
                self._running.remove(member)
                self._paused.append((time.monotonic() + seconds, member))
            case "kill broker":
                self._say("the broker is killed")
                self._broker.kill9()
                self._broker.start()
            case _:
                raise AssertionError(action)
        if action != "pause":
            self._count(action)

    def _count(self, action: str) -> None:
        self.done[action] = self.done.get(action, 0) + 1

    def _next_action(self) -> str:
        """All kinds equally often; but one joins if too few are left, and one leaves if there are many."""
        fewest, most = self._scenario.members
        count = len(self._running)
        if count < fewest:
            return "join"
        if not self._deck:
            self._deck = self._generator.sample(self._actions, len(self._actions))
        action = self._deck.pop()
        return "leave" if action == "join" and count >= most else action

    def _join(self) -> None:
        number = next(self._numbers)
        client = self._scenario.clients[(number - 1) % len(self._scenario.clients)]
        member = MemberProcess(
            f"{client}-{number}", self._folder, client=client, broker=self._broker, scenario=self._scenario
        )
        self._say(f"{member.name} joins")
        self.all_members.append(member)
        self._running.append(member)
        member.start()

    def _pick(self) -> MemberProcess:
        return self._generator.choice(self._running)

    def _left(self, member: MemberProcess) -> None:
        code = member.wait_exit(PROGRESS_TIMEOUT_S)
        assert code == member.clean_exit_code(), (
            f"{member.name} ended with exit code {code}\n{member.log_tail()}"
        )
        member.journal.read()
        assert isinstance(member.journal.events[-1], Ended), f"{member.name} did not end its journal"

    def _resume_due(self, *, everybody: bool = False) -> None:
        now = time.monotonic()
        for due in [one for one in self._paused if everybody or one[0] <= now]:
            self._say(f"{due[1].name} goes on")
            due[1].resume()
            if due[0] <= now:
                self._count("pause")
            self._paused.remove(due)
            self._running.append(due[1])

    def _check_alive(self) -> None:
        assert self._broker.exit_code is None, f"the broker ended by itself\n{self._broker.log_tail()}"
        for member in self._running:
            assert member.exit_code is None, f"{member.name} ended by itself\n{member.log_tail()}"

    def _all_assigned(self) -> bool:
        self._check_alive()
        self.events_of_all()
        return all(any(isinstance(event, Assigned) for event in one.journal.events) for one in self._running)

    def _processed_something(self) -> bool:
        self._check_alive()
        return any(isinstance(event, Processed) for event in self.events_of_all())

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.2f} s: {what}", flush=True)
