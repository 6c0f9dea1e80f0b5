"""franz-go, a Go client, in processes: a producer, an administrator, and members of groups."""

import itertools
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.compat.tools import FRANZ
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

Row = dict[str, Any]
Partitions = frozenset[tuple[str, int]]

_numbers = itertools.count(1)


def franz(broker: Any, command: str, *arguments: str, timeout_s: float = PATIENCE_SEC) -> list[Row]:
    """The output of a command, in lines of JSON. Raises AssertionError if it failed."""
    done = subprocess.run(
        [FRANZ, command, "-brokers", broker.bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(broker: Any, question: str, *arguments: str) -> list[Row]:
    """The answers to an administrator's request (tests/compat/go/admin.go)."""
    return franz(broker, "admin", "-do", question, *arguments)


class FranzMember(ServerProcess):
    """A member of a group. Leaves it at the end of its `with` block, unless it is a static member.

    Flags are keyword arguments: balancers="range,sticky" is `-balancers range,sticky`.
    """

    def __init__(self, folder: Path, broker: Any, group: str, topic: str, **flags: object) -> None:
        super().__init__(f"franz-{next(_numbers)}", folder)
        self._flags = {"brokers": broker.bootstrap, "group": group, "topics": topic} | flags
        self._rows: list[Row] = []
        self._read_bytes = 0

    def __enter__(self) -> "FranzMember":
        flags = [f"-{name}={value}" for name, value in self._flags.items()]
        self.launch([str(FRANZ), "consume", *flags], clean_environment())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.exit_code is None:
                self.stop()
        finally:
            self.close()

    def events(self, kind: str | None = None) -> list[Row]:
        """Its events so far, of one kind or all."""
        with self.log_path.open("rb") as log:
            log.seek(self._read_bytes)
            new = log.read()
        new = new[: new.rfind(b"\n") + 1]  # the last line may not yet be whole
        self._read_bytes += len(new)
        self._rows += [json.loads(line) for line in new.splitlines() if line.startswith(b"{")]
        return [row for row in self._rows if kind in (None, row["event"])]

    @property
    def assignment(self) -> Partitions:
        """The partitions that it has now."""
        owned: set[tuple[str, int]] = set()
        for row in self.events():
            if row["event"] in ("assigned", "revoked", "lost"):
                told = {(topic, index) for topic, indexes in row["partitions"].items() for index in indexes}
                owned = owned | told if row["event"] == "assigned" else owned - told
        return frozenset(owned)

    @property
    def values(self) -> list[str]:
        """The values that it consumed, in that order."""
        return [row["value"] for row in self.events("record")]

    @property
    def generation(self) -> int:
        """The protocol of its last assignment."""
        return int(self.events("assigned")[-1]["generation"])

    def commit(self) -> dict[str, dict[str, int]]:
        """Commit what it consumed: topic -> partition (as text) -> offset."""
        before = len(self.events("committed"))
        self.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(self.events("committed")) > before, f"{self.name} has committed")
        told = self.events("committed")[-1]
        assert told["error"] == "", f"{self.name}: {told}"
        offsets: dict[str, dict[str, int]] = told["offsets"]
        return offsets
