"""Java programs of these tests: Kafka's own with further jars, and an application of Kafka Streams."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.compat.tools import COMPACTION_LIBS, KAFKA_LIBS
from tests.support.java import JVM_OPTIONS, JavaServer
from tests.support.waiting import PATIENCE_SEC, wait_until

CLASS_PATH: Final = f"{KAFKA_LIBS}/*:{COMPACTION_LIBS}/*"
_STREAMS_TABLE: Final = Path(__file__).with_name("StreamsTable.java")


def java_with_more(main: str, *arguments: str) -> list[str]:
    """The command line that runs a class or a source file with all of these jars."""
    return ["java", *JVM_OPTIONS, "-cp", CLASS_PATH, main, *arguments]


class StreamsTable:
    """A running application; see StreamsTable.java."""

    def __init__(self, server: JavaServer) -> None:
        self._server = server

    def wait_until_running(self) -> int:
        """Wait until it has restored its table; returns the number of records that this took."""

        def is_running() -> bool:
            return bool(self._ask("state")["state"] == "RUNNING")

        wait_until(is_running, "the application is running")
        return int(self._ask("state")["restored"])

    def table(self) -> dict[str, str]:
        """Its table."""
        found: dict[str, str] = self._ask("table")["table"]
        return found

    def _ask(self, what: str) -> dict[str, Any]:
        return self._server.ask({"do": what}, PATIENCE_SEC)


@contextlib.contextmanager
def streams_table(
    bootstrap: str, application: str, topic: str, folder: Path, changelog: Mapping[str, object]
) -> Iterator[StreamsTable]:
    """An application with its state in `folder`; it is closed in good order at the end of the block."""
    configs = json.dumps({name: str(value) for name, value in changelog.items()})
    folder.mkdir()
    state = str(folder / "state")
    command = java_with_more(str(_STREAMS_TABLE), bootstrap, application, topic, state, configs)
    server = JavaServer(command, folder / "streams.err")
    try:
        yield StreamsTable(server)
        server.finish(PATIENCE_SEC)
    finally:
        server.close()
