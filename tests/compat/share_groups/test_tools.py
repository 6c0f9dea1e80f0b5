"""Kafka's own tools that read from share groups, as processes of their own."""

import json

import pytest

from tests.compat import tools
from tests.compat.conftest import Peer
from tests.compat.share_groups.conftest import ShareGroupOfClients, skip_without
from tests.support.java import run_tool
from tests.support.share_clients import produce

CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE_SHARE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"


@pytest.fixture(autouse=True)
def java_is_there() -> None:
    """For tests that run Kafka's tools."""
    skip_without("java")


def test_console_share_consumer(peer: Peer, group: ShareGroupOfClients, topic: str) -> None:
    """It accepts what it prints, and releases the rest when it ends."""
    values = [f"line-{number}" for number in range(8)]
    produce(peer, topic, values)

    def read(count: int) -> list[str]:
        done = run_tool(
            CONSOLE_SHARE_CONSUMER, "--bootstrap-server", peer.bootstrap, "--topic", topic, "--group", group.name,
            "--max-messages", str(count), libs=tools.KAFKA_SHARE_LIBS,
        )  # fmt: skip
        return done.ok().splitlines()

    assert read(3) == values[:3]
    assert read(5) == values[3:]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "more"),
    [("auto", ["--offset-reset-strategy", "earliest"]), ("sync", []), ("async", [])],
    ids=["auto", "sync", "async"],
)
def test_verifiable_share_consumer(
    peer: Peer, group: ShareGroupOfClients, topic: str, mode: str, more: list[str]
) -> None:
    count = produce(peer, topic, [f"line-{number}" for number in range(20)])
    done = run_tool(
        VERIFIABLE_SHARE_CONSUMER, "--bootstrap-server", peer.bootstrap, "--topic", topic, "--group-id", group.name,
        "--acknowledgement-mode", mode, "--max-messages", str(count), *more, libs=tools.KAFKA_SHARE_LIBS,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.ok().splitlines() if line.startswith("{")]
    assert rows[0]["name"] == "startup_complete"
    assert rows[-1]["name"] == "shutdown_complete"
    assert sum(row["count"] for row in rows if row["name"] == "records_consumed") == count
    told = [row for row in rows if row["name"] == "offsets_acknowledged"]
    assert sum(row["count"] for row in told) == count
    assert all(row["success"] for row in told)
