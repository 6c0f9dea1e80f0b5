"""A group member in a process of its own, so that it can be killed or stopped without notice to its group."""

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.group_members import MEMBERS, Handled, Partitions
from tests.support.process import ServerProcess, clean_environment

REPOSITORY = Path(__file__).resolve().parents[2]
REPORT_SECONDS = 0.02


class MemberProcess(ServerProcess):
    """A process with one member. It reports a record before it polls again, so before any commit of it."""

    failure = None  # a member that fails exits; `exit_code` and the log show why

    def __init__(
        self, folder: Path, client: str, bootstrap: str, group: str, topic: str, **settings: Any
    ) -> None:
        super().__init__(f"member-{client}", folder)
        self._arguments = json.dumps([client, bootstrap, group, topic, settings])

    def __enter__(self) -> "MemberProcess":
        environment = clean_environment() | {"PYTHONPATH": str(REPOSITORY)}
        self.launch([sys.executable, "-m", "tests.support.member_process", self._arguments], environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assignment(self) -> Partitions:
        """The partitions of its last report."""
        told = [row["assignment"] for row in self._told() if "assignment" in row]
        return frozenset((topic, partition) for topic, partition in told[-1]) if told else frozenset()

    @property
    def handled(self) -> list[Handled]:
        """The records that it handled, in that order."""
        return [Handled(**row["handled"]) for row in self._told() if "handled" in row]

    def kill(self) -> None:
        """Kill it; it does not leave its group, and the kernel closes its connections."""
        self.kill9()

    def _told(self) -> list[dict[str, Any]]:
        lines = self.log_text().split("\n")[:-1]  # the last is empty, or not yet whole
        return [json.loads(line) for line in lines if line.startswith("{")]

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.assignment)})\n{self.log_tail()}"


def _tell(**row: object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Be a member until SIGTERM: then leave the group."""
    client, bootstrap, group, topic, settings = json.loads(sys.argv[1])
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    member = MEMBERS[client](bootstrap, group, topic, **settings)
    member.on_handled = lambda one: _tell(
        handled={"topic": one.topic, "partition": one.partition, "offset": one.offset, "at": one.at}
    )
    told = None
    with member:
        while not ended.wait(REPORT_SECONDS):
            if member.failure is not None:
                raise member.failure
            if member.assignment != told:
                told = member.assignment
                _tell(assignment=sorted(told))


if __name__ == "__main__":
    main()
