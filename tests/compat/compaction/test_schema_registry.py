"""A schema registry, Karapace, whose `_schemas` is compacted: what it knows over compactions and restarts.

Karapace is in no package registry. KAFSCALE_TEST_KARAPACE names a command that runs it, such as a Python in whose
environment it is installed from its repository.
"""

import http.client
import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import Peer
from tests.support.compacted_topics import DIRTY_AT_ONCE, count_records
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
SUBJECTS = 4
RESTARTS = 3
LEVELS = ("BACKWARD", "FULL", "NONE")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not os.environ.get("KAFSCALE_TEST_KARAPACE"), reason="KAFSCALE_TEST_KARAPACE names no Karapace"
    ),
]


class Karapace(ServerProcess):
    """A schema registry on the topic."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        super().__init__("karapace", folder)
        self._port = free_port()
        self._settings = {
            "BOOTSTRAP_URI": bootstrap,
            "HOST": HOST,
            "PORT": str(self._port),
            "ADVERTISED_HOSTNAME": HOST,
            "TOPIC_NAME": topic,
            "GROUP_ID": f"group-{topic}",
            "REPLICATION_FACTOR": "1",
            "KARAPACE_REGISTRY": "true",
        }

    def start(self) -> None:
        """Start it and wait until it has read its topic, and may write to it."""
        command = [*shlex.split(os.environ["KAFSCALE_TEST_KARAPACE"]), "-m", "karapace"]
        settings = {f"KARAPACE_{name}": value for name, value in self._settings.items()}
        self.launch(command, clean_environment() | settings)
        wait_until(self._is_ready, "the registry is ready")

    def _is_ready(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            status, reply = self.ask("GET", "/master_available")
        except OSError:
            return False
        return status == 200 and bool(reply["master_available"])

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=PATIENCE_SEC)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
            response = connection.getresponse()
            text = response.read()
            # While it starts, it answers some requests with a text.
            is_json = "json" in response.getheader("Content-Type", "")
            return response.status, json.loads(text) if is_json and text else None
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a request that succeeds."""
        status, reply = self.ask(method, path, body)
        assert status == 200, f"{method} {path}: {status} {reply}\n{self.log_tail()}"
        return reply

    def everything(self) -> dict[str, Any]:
        """All that it knows: of each subject the versions with id and schema, and its compatibility."""
        found = {}
        for subject in self.ok("GET", "/subjects"):
            versions = self.ok("GET", f"/subjects/{subject}/versions")
            status, config = self.ask("GET", f"/config/{subject}")
            found[subject] = {
                "config": config if status == 200 else None,
                "versions": [self.ok("GET", f"/subjects/{subject}/versions/{one}") for one in versions],
            }
        return found


@pytest.fixture
def topic(compacting: Peer) -> str:
    name = unique_name("schemas")
    create_topic(compacting, name, 1, DIRTY_AT_ONCE)
    return name


@pytest.fixture
def registry(compacting: Peer, topic: str, tmp_path: Path) -> Iterator[Karapace]:
    made = Karapace(tmp_path, compacting.bootstrap, topic)
    try:
        made.start()
        yield made
    finally:
        made.close()


def schema(subject: str, fields: int) -> dict[str, str]:
    """A record schema; one with more fields is compatible with one with fewer."""
    columns = [
        {"name": f"f{number}", "type": ["null", "string"], "default": None} for number in range(fields)
    ]
    return {"schema": json.dumps({"type": "record", "name": subject.replace("-", "_"), "fields": columns})}


def test_registry_knows_all_after_compactions(compacting: Peer, registry: Karapace, topic: str) -> None:
    turn = 0

    def is_compacted() -> bool:
        nonlocal turn
        turn += 1
        subject = f"subject-{turn % SUBJECTS}"
        registry.ok("POST", f"/subjects/{subject}/versions", schema(subject, turn // SUBJECTS + 1))
        registry.ok("PUT", f"/config/{subject}", {"compatibility": LEVELS[turn % len(LEVELS)]})
        registry.ok("PUT", f"/config/{subject}", {"compatibility": LEVELS[(turn + 1) % len(LEVELS)]})
        if turn % 10 == 0:
            # A subject that goes again: first soft, then for good, with tombstones.
            brief = f"brief-{turn}"
            registry.ok("POST", f"/subjects/{brief}/versions", schema(brief, 1))
            registry.ok("DELETE", f"/subjects/{brief}")
            registry.ok("DELETE", f"/subjects/{brief}?permanent=true")
        end_offset, records = count_records(compacting, topic)
        return turn % 20 == 0 and records < end_offset * 0.8

    for restart in range(RESTARTS):
        wait_until(is_compacted, "the registry's topic is compacted")
        before = registry.everything()
        print(
            restart,
            turn,
            count_records(compacting, topic),
            {name: len(one["versions"]) for name, one in before.items()},
        )
        assert len(before) == SUBJECTS
        registry.send_signal(signal.SIGKILL if restart % 2 else signal.SIGTERM)
        registry.wait_exit(PATIENCE_SEC)
        registry.start()
        assert registry.everything() == before
        # The ids go on where they were: no schema gets one that another has.
        fresh = registry.ok("POST", f"/subjects/fresh-{restart}/versions", schema(f"fresh-{restart}", 60))
        assert fresh["id"] > max(one["id"] for known in before.values() for one in known["versions"])
        registry.ok("DELETE", f"/subjects/fresh-{restart}")
