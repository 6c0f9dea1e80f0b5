"""kafka-configs.sh for users' SCRAM credentials, which is Kafka's AdminClient (KIP-554)."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import Peer
from tests.support import java as tools
from tests.support.java import ToolResult, ToolServer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC


class UsersTool:
    """`kafka-configs.sh --entity-type users` of one broker."""

    def __init__(self, java: ToolServer, broker: Peer) -> None:
        self._java = java
        self._broker = broker
        self.made: list[str] = []

    def __call__(self, *arguments: str) -> ToolResult:
        address = ("--bootstrap-server", self._broker.bootstrap)
        return self._java.tool(tools.CONFIGS, *address, *arguments)

    def set(self, name: str, value: str) -> str:
        self.made.append(name)
        return self("--alter", *user(name), "--add-config", value).ok()

    def described(self, name: str) -> dict[str, int]:
        """The user's mechanisms and iterations; none for an unknown user."""
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        asked: Any = admin.describe_user_scram_credentials([name])
        try:
            found = asked[name].result(PATIENCE_SEC)
        except KafkaException:
            return {}
        return {one.mechanism.name: one.iterations for one in found.scram_credential_infos}


def user(name: str) -> tuple[str, ...]:
    return ("--entity-type", "users", "--entity-name", name)


@pytest.fixture
def users(java: ToolServer, broker: Peer) -> Iterator[UsersTool]:
    tool = UsersTool(java, broker)
    yield tool
    for name in tool.made:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            tool("--alter", *user(name), "--delete-config", mechanism)


def test_credentials_are_set_and_removed(users: UsersTool) -> None:
    name = unique_name()
    assert f"Completed updating config for user {name}." in users.set(
        name, "SCRAM-SHA-256=[iterations=8192,password=one]"
    )
    users.set(name, "SCRAM-SHA-512=[password=two]")
    assert users.described(name) == {"SCRAM_SHA_256": 8192, "SCRAM_SHA_512": 4096}

    users("--alter", *user(name), "--delete-config", "SCRAM-SHA-256").ok()
    assert users.described(name) == {"SCRAM_SHA_512": 4096}


def test_illegal_changes_are_refused(users: UsersTool) -> None:
    name = unique_name()
    gone = users("--alter", *user(name), "--delete-config", "SCRAM-SHA-256")
    assert gone.exit_code == 1
    assert "Attempt to delete a user credential that does not exist" in gone.out + gone.err
    few = users("--alter", *user(name), "--add-config", "SCRAM-SHA-256=[iterations=100,password=x]")
    assert few.exit_code == 1
    assert users.described(name) == {}
