"""A consumer group whose members, each a process with a journal, are in trouble."""

import random
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.tools import ROOT
from tests.support.apache_kafka import SIGTERM_EXIT_CODE
from tests.support.cluster import Cluster
from tests.support.group_journal import Assigned, Ended, Event, JournalReader, Processed
from tests.support.java import java_command
from tests.support.member_chaos import MemberChaos
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import wait_until

MAX_POLL_INTERVAL_MS = 30_000
PYTHON_MEMBER = "tests.support.group_member_process"
JAVA_MEMBER = ROOT / "tests/compat/java/JournalMember.java"
JAVA_CONSUMER_PROTOCOL = "java-consumer-protocol"
JAVA_PROTOCOLS: Mapping[str, str] = {"java": "classic", JAVA_CONSUMER_PROTOCOL: "consumer"}
"""Java's clients, and their `group.protocol`."""


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
        if client in JAVA_PROTOCOLS:
            protocol = JAVA_PROTOCOLS[client]
            self._command = java_command(str(JAVA_MEMBER), *options, "--protocol", protocol)
        else:
            self._command = [sys.executable, "-m", PYTHON_MEMBER, "--client", client, *options]

    def clean_exit_code(self) -> int:
        return SIGTERM_EXIT_CODE if self.client in JAVA_PROTOCOLS else 0

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


class Chaos(MemberChaos[MemberProcess]):
    """Troubles a group on a broker, or on the brokers of a cluster.

    `kill_broker`: it is killed, too. `troubles`: what else happens, by name.
    """

    def __init__(
        self,
        broker: Any,
        scenario: Scenario,
        folder: Path,
        generator: random.Random,
        *,
        kill_broker: bool = False,
    ) -> None:
        session_s = scenario.session_timeout_ms / 1000
        super().__init__(
            folder,
            generator,
            members=scenario.members,
            pause_s=(session_s + 0.3, session_s + 1.0),
            troubles={"kill broker": self._kill_broker} if kill_broker else {},
        )
        self._broker = broker
        self._scenario = scenario

    def start(self, count: int | None = None) -> None:
        """A member of each client, and as many as the scenario needs at least."""
        super().start(max(self._scenario.members[0], len(self._scenario.clients)) if count is None else count)

    def journals(self) -> dict[str, list[Event]]:
        """All journal events: member -> events."""
        self.events_of_all()
        return {member.name: member.journal.events for member in self.all_members}

    def events_of_all(self) -> list[Event]:
        """Read the new events of all journals."""
        return [event for member in self.all_members for event in member.journal.read()]

    def new_member(self, number: int) -> MemberProcess:
        client = self._scenario.clients[(number - 1) % len(self._scenario.clients)]
        return MemberProcess(
            f"{client}-{number}", self._folder, client=client, broker=self._broker, scenario=self._scenario
        )

    def has_begun(self, member: MemberProcess) -> bool:
        self.events_of_all()
        return any(isinstance(event, Assigned) for event in member.journal.events)

    def has_progressed(self) -> bool:
        return any(isinstance(event, Processed) for event in self.events_of_all())

    def check_left(self, member: MemberProcess) -> None:
        member.journal.read()
        assert isinstance(member.journal.events[-1], Ended), f"{member.name} did not end its journal"

    def check_servers(self) -> None:
        # A cluster's brokers are watched by those that trouble them.
        if not isinstance(self._broker, Cluster):
            assert self._broker.exit_code is None, f"the broker ended by itself\n{self._broker.log_tail()}"

    def _kill_broker(self) -> None:
        self._broker.kill9()
        self._broker.start()
