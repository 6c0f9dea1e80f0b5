"""Members of share groups with real clients, each in a process of its own, and what they said.

All of them do with a record what its value asks for. It begins with `good` (accepted), `again` (released at its
first delivery, then accepted), `poison` (always released), `bad` (rejected), or `renew` (renewed, then accepted;
Java only).
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from tests.compat.tools import FRANZ_SHARE, KAFKA_SHARE_LIBS, ROOT
from tests.support.apache_kafka import SIGTERM_EXIT_CODE
from tests.support.java import java_command
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

SHARE_MEMBER = ROOT / "tests/compat/java/ShareMember.java"
COMMANDS: Mapping[str, Callable[[], list[str]]] = {
    "java": lambda: java_command(str(SHARE_MEMBER), libs=KAFKA_SHARE_LIBS),
    "librdkafka": lambda: [sys.executable, "-m", "tests.support.share_member_librdkafka"],
    "franz": lambda: [str(FRANZ_SHARE)],
}
CLIENTS = tuple(COMMANDS)

_numbers = itertools.count(1)


class Delivery(NamedTuple):
    """One record as a member received it, and how often it had been delivered by then."""

    partition: int
    offset: int
    value: str
    deliveries: int


class ShareClient(ServerProcess):
    """A member. Leaves its group at the end of its `with` block.

    `mode`: explicit, or implicit acknowledgement. `hold`: it acknowledges nothing of what it polls first, and polls
    no more. `count`: records in one poll at most. `work_ms`: how long it has records before it acknowledges them
    (not franz-go).
    """

    def __init__(
        self,
        folder: Path,
        client: str,
        broker: Any,
        group: str,
        topic: str,
        *,
        mode: str = "explicit",
        hold: bool = False,
        count: int = 100,
        work_ms: int = 0,
    ) -> None:
        super().__init__(f"share-{client}-{next(_numbers)}", folder)
        self._client = client
        self._flags = [
            f"-bootstrap={broker.bootstrap}", f"-group={group}", f"-topics={topic}", f"-mode={mode}",
            f"-hold={str(hold).lower()}", f"-count={count}",
        ]  # fmt: skip
        if work_ms:
            self._flags.append(f"-work={work_ms}")

    def start(self) -> None:
        """Start it without waiting."""
        environment = clean_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.launch([*COMMANDS[self._client](), *self._flags], environment)

    def __enter__(self) -> "ShareClient":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.exit_code is None:
                self.stop()
        finally:
            self.close()

    def clean_exit_code(self) -> int:
        return SIGTERM_EXIT_CODE if self._client == "java" else 0

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Its events of that kind so far."""
        lines = self.log_text().split("\n")[:-1]  # the last is empty, or not yet whole
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [row for row in rows if row["event"] == kind]

    @property
    def deliveries(self) -> list[Delivery]:
        """The records that it has received, in that order."""
        return [
            Delivery(row["partition"], row["offset"], row["value"], row["deliveries"])
            for row in self.events("record")
        ]

    @property
    def acknowledged(self) -> int:
        """How many of its acknowledgements (librdkafka, Java: offsets; franz-go: partitions) were answered well."""
        return sum(len(row["offsets"]) or 1 for row in self.events("acknowledged") if not row["error"])

    @property
    def errors(self) -> list[str]:
        """The problem, by its own account."""
        told = [row["error"] for row in self.events("acknowledged") if row["error"]]
        return told + [row["message"] for row in self.events("error")]

    def wait_holding(self) -> frozenset[str]:
        """Wait until it holds records and polls no more. Their values."""
        wait_until(lambda: self.is_running() and self.events("holding"), f"{self.name} holds records")
        return frozenset(one.value for one in self.deliveries)

    def is_running(self) -> bool:
        """True. Raises AssertionError if it has ended."""
        assert self.exit_code is None, f"{self.name} ended by itself\n{self.log_tail()}"
        return True


def all_deliveries(members: Iterable[ShareClient]) -> list[Delivery]:
    """All that any of them has received."""
    return [one for member in members for one in member.deliveries]


def produce(broker: Any, topic: str, values: Iterable[str], partitions: int = 1) -> int:
    """Write the values, in turn over the partitions; returns how many they were. Small batches."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.num.messages": 10, "log_level": 4}
    )
    failures: list[object] = []
    count = 0
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        count += 1
    assert producer.flush(PATIENCE_SEC) == 0
    assert failures == []
    return count
