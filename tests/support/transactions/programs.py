"""Transactions of clients that are programs: Java, franz-go, KafkaJS. Each answers lines of JSON with one each.

A program has many producers, by name: `open` one (`bootstrap`, `id`, `timeout_ms`), then `begin`, `send`, `offsets`,
`commit`, `abort`, `close` it; and `read` reads partition 0 of a topic. A reply is an object, with `error` and
`message` if the client failed.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.compat.tools import FRANZ, KAFKA_JS, ROOT
from tests.support.java import CLASS_PATH, JavaError, JavaServer, compiled, java_command
from tests.support.transactions.client import READ_COMMITTED, Partition, Read, TransactionError
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC

JAVA_SOURCES = ROOT / "tests/compat/transactions/java"
_KAFKA_JS_SOURCE = ROOT / "tests/compat/node/transactions.js"
_ASK_SECONDS = PATIENCE_SEC + 30  # longer than the program's own limit, whose error is more precise

_numbers = itertools.count()


class ProgramProducer:
    """A producer in a program."""

    def __init__(self, server: JavaServer, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._server = server
        self._name = f"producer-{next(_numbers)}"
        self.ask("open", bootstrap=bootstrap, id=transactional_id, timeout_ms=timeout_ms)

    def begin(self) -> None:
        self.ask("begin")

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        self.ask("send", topic=topic, partition=partition, values=[value.decode() for value in values])

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        self.ask("offsets", group=group, offsets=[[*key, offset] for key, offset in offsets.items()])

    def commit(self) -> None:
        self.ask("commit")

    def abort(self) -> None:
        self.ask("abort")

    def close(self) -> None:
        self.ask("close")

    def ask(self, what: str, **arguments: object) -> dict[str, Any]:
        """The reply of the program."""
        return _ask(self._server, {"do": what, "name": self._name, **arguments})


class ProgramClient:
    """A program that is running, or starts with its first call."""

    def __init__(self, name: str, server: JavaServer, *, knows_new_protocol: bool) -> None:
        self.name = name
        self.server = server
        self.knows_new_protocol = knows_new_protocol

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> ProgramProducer:
        return ProgramProducer(self.server, bootstrap, transactional_id, timeout_ms)

    def read(self, bootstrap: str, topic: str, last: bytes, isolation: str = READ_COMMITTED) -> list[Read]:
        reply = self.ask(
            "read", bootstrap=bootstrap, topic=topic, last=last.decode(), isolation=isolation,
            timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        return [Read(offset, value.encode()) for offset, value in reply["records"]]

    def ask(self, what: str, **arguments: object) -> dict[str, Any]:
        """The reply of the program."""
        return _ask(self.server, {"do": what, **arguments})


def _ask(server: JavaServer, request: Mapping[str, object]) -> dict[str, Any]:
    try:
        return server.ask(request, _ASK_SECONDS)
    except JavaError as error:
        raise TransactionError(error.kind, str(error)) from error


@contextlib.contextmanager
def java_client(folder: Path) -> Iterator[ProgramClient]:
    """Kafka's Java clients, for the time of the block."""
    classes = compiled(*sorted(JAVA_SOURCES.glob("Transaction*.java")))
    command = java_command("TransactionServer")
    command[command.index(CLASS_PATH)] = f"{CLASS_PATH}:{classes}"
    server = JavaServer(command, folder / "transactions.err")
    with contextlib.closing(server):
        yield ProgramClient("java", server, knows_new_protocol=True)


@contextlib.contextmanager
def franz_client(folder: Path) -> Iterator[ProgramClient]:
    """franz-go, for the time of the block."""
    server = JavaServer([str(FRANZ), "transact"], folder / "franz.err")
    with contextlib.closing(server):
        yield ProgramClient("franz-go", server, knows_new_protocol=True)


@contextlib.contextmanager
def kafka_js_client(folder: Path) -> Iterator[ProgramClient]:
    """KafkaJS, for the time of the block."""
    command = ["env", f"NODE_PATH={KAFKA_JS / 'node_modules'}", "node", str(_KAFKA_JS_SOURCE)]
    server = JavaServer(command, folder / "kafkajs.err")
    with contextlib.closing(server):
        yield ProgramClient("kafkajs", server, knows_new_protocol=False)
