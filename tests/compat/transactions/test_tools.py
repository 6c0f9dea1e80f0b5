"""`kafka-transactions.sh` in every mode, `kafka-get-offsets.sh` and the console consumer, as their users run them."""

import time
from collections.abc import Iterator, Sequence

import pytest

from tests.compat.conftest import Peer
from tests.support.java import CONSOLE_CONSUMER, GET_OFFSETS, ToolResult, ToolServer
from tests.support.librdkafka import producer as plain_producer
from tests.support.librdkafka import send_all
from tests.support.topics import unique_name
from tests.support.transactions.client import TransactionalProducer, TransactionError
from tests.support.transactions.clients import Librdkafka
from tests.support.transactions.observing import (
    high_watermark,
    last_stable_offset,
    transaction_state,
)
from tests.support.waiting import wait_until

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
HOUR_MS = 3_600_000
OTHER_ID = "no-such-id"

Row = dict[str, str]


class Tool:
    """`kafka-transactions.sh` on one broker, in one JVM."""

    def __init__(self, server: ToolServer, broker: Peer) -> None:
        self._server = server
        self._bootstrap = broker.bootstrap

    def __call__(self, *arguments: str) -> ToolResult:
        return self._server.tool(TRANSACTIONS, "--bootstrap-server", self._bootstrap, *arguments)

    def table(self, *arguments: str) -> list[Row]:
        """The table that it prints."""
        head, *rows = [line for line in self(*arguments).ok().splitlines() if line]
        names = [name.strip() for name in head.rstrip("\t").split("\t")]
        values = [[value.strip() for value in row.removesuffix("\t").split("\t")] for row in rows]
        return [dict(zip(names, one, strict=True)) for one in values]

    def producers(self, topic: str, *more: str) -> list[Row]:
        return self.table("describe-producers", "--topic", topic, "--partition", "0", *more)


@pytest.fixture
def tool(java: ToolServer, peer: Peer) -> Tool:
    return Tool(java, peer)


@pytest.fixture
def transactional_id() -> str:
    return unique_name("id")


@pytest.fixture
def producer(peer: Peer, topic: str, transactional_id: str) -> Iterator[TransactionalProducer]:
    """A producer with an open transaction: two records in partition 0 of `topic`."""
    opened = Librdkafka().producer(peer.bootstrap, transactional_id, HOUR_MS // 6)
    opened.begin()
    opened.send(topic, 0, [b"a", b"b"])
    yield opened
    # Another one aborts whatever is left open, so that other tests find nothing of it.
    Librdkafka().producer(peer.bootstrap, transactional_id).close()


def ids(rows: Sequence[Row]) -> dict[str, str]:
    return {row["TransactionalId"]: row["TransactionState"] for row in rows}


@pytest.mark.usefixtures("producer")
def test_list_shows_transactional_ids(tool: Tool, transactional_id: str) -> None:
    assert ids(tool.table("list"))[transactional_id] == "Ongoing"
    assert transactional_id not in ids(tool.table("list", "--duration-filter", str(HOUR_MS)))
    wait_until(
        lambda: transactional_id in ids(tool.table("list", "--duration-filter", "1")), "it is open that long"
    )


@pytest.mark.usefixtures("producer")
def test_list_filters_by_a_pattern(tool: Tool, peer_kind: str, transactional_id: str) -> None:
    """Kafscale leaves out expressions of clients, and the tool says so (docs/skipped.md)."""
    pattern = ("list", "--transactional-id-pattern")
    if peer_kind == "kafscale":
        refused = tool(*pattern, transactional_id)
        assert refused.exit_code == 1
        assert (
            "Transactional ID pattern filter can be set only when using API version 2 or higher"
            in refused.err
        )
        return
    assert transactional_id in ids(tool.table(*pattern, transactional_id[:-1] + "."))
    assert ids(tool.table(*pattern, "x" + transactional_id)) == {}
    assert tool(*pattern, "(").exit_code == 1


def test_describe_shows_a_transaction(
    tool: Tool, producer: TransactionalProducer, topic: str, transactional_id: str
) -> None:
    (row,) = tool.table("describe", "--transactional-id", transactional_id)
    assert row["TransactionState"] == "Ongoing"
    assert row["TopicPartitions"] == f"{topic}-0"
    assert row["TransactionTimeoutMs"] == str(HOUR_MS // 6)
    began = row["CurrentTransactionStartTimeMs"]
    assert abs(int(began) / 1000 - time.time()) < 300
    assert 0 <= int(row["TransactionDurationMs"]) < 300_000
    producer.commit()

    def is_complete() -> bool:
        (row,) = tool.table("describe", "--transactional-id", transactional_id)
        if row["TransactionState"] != "CompleteCommit":
            return False
        assert (row["TopicPartitions"], row["CurrentTransactionStartTimeMs"]) == ("", began)
        return True

    wait_until(is_complete, "the commit is complete")


def test_describe_of_an_unknown_id_fails(tool: Tool) -> None:
    result = tool("describe", "--transactional-id", OTHER_ID)
    assert result.exit_code == 1
    assert "the ID could not be found" in result.err


def test_describe_producers_shows_open_transactions(
    tool: Tool, producer: TransactionalProducer, peer: Peer, topic: str, transactional_id: str
) -> None:
    state = transaction_state(peer, transactional_id)
    (row,) = tool.producers(topic)
    assert row["ProducerId"] == str(state.producer_id)
    assert row["ProducerEpoch"] == str(state.producer_epoch)
    assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("1", "0")
    assert abs(int(row["LastTimestamp"]) / 1000 - time.time()) < 300
    leader = tool.table("describe", "--transactional-id", transactional_id)[0]["CoordinatorId"]
    assert tool.producers(topic, "--broker-id", leader) == [row]
    producer.commit()
    wait_until(
        lambda: tool.producers(topic)[0]["CurrentTransactionStartOffset"] == "None", "the transaction is over"
    )


def test_find_hanging_leaves_out_what_the_coordinator_knows(
    tool: Tool, producer: TransactionalProducer, topic: str, transactional_id: str
) -> None:
    # Old enough for it to ask the coordinator, by the records' timestamps.
    state = tool.table("describe", "--transactional-id", transactional_id)[0]
    arguments = ("--max-transaction-timeout", "0")
    assert tool.table("find-hanging", "--topic", topic, "--partition", "0", *arguments) == []
    assert tool.table("find-hanging", "--topic", topic, *arguments) == []
    broker = state["CoordinatorId"]
    rows = tool.table("find-hanging", "--broker-id", broker, *arguments)
    assert [row for row in rows if row["Topic"] == topic] == []


def test_abort_ends_an_open_transaction(
    tool: Tool, producer: TransactionalProducer, peer: Peer, topic: str
) -> None:
    send_all(plain_producer(peer), topic, [b"after"])
    assert last_stable_offset(peer, topic) == 0
    abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset")
    tool(*abort, "0").ok()
    wait_until(lambda: last_stable_offset(peer, topic) == 4, "the marker is written")
    again = tool(*abort, "0")
    assert again.exit_code == 1
    assert f"Could not find any open transactions starting at offset 0 on partition {topic}-0" in again.err
    assert [one.value for one in Librdkafka().read(peer.bootstrap, topic, b"after")] == [b"after"]
    assert tool.producers(topic)[0]["CurrentTransactionStartOffset"] == "None"


def test_abort_by_producer_id_ends_an_open_transaction(
    tool: Tool, producer: TransactionalProducer, peer: Peer, topic: str, transactional_id: str
) -> None:
    state = transaction_state(peer, transactional_id)
    tool(
        "abort", "--topic", topic, "--partition", "0",
        "--producer-id", str(state.producer_id),
        "--producer-epoch", str(state.producer_epoch),
        "--coordinator-epoch", "0",
    ).ok()  # fmt: skip
    wait_until(lambda: last_stable_offset(peer, topic) == 3, "the marker is written")


def test_force_terminate_aborts_and_fences(
    tool: Tool, producer: TransactionalProducer, peer: Peer, topic: str, transactional_id: str
) -> None:
    before = transaction_state(peer, transactional_id)
    tool("forceTerminateTransaction", "--transactionalId", transactional_id).ok()
    wait_until(lambda: last_stable_offset(peer, topic) == 3, "the transaction is aborted")
    after = transaction_state(peer, transactional_id)
    assert after.state in ("Empty", "CompleteAbort")
    assert after.producer_epoch > before.producer_epoch
    with pytest.raises(TransactionError) as raised:
        producer.commit()
    assert raised.value.is_fenced


def test_console_consumer_and_get_offsets_know_transactions(
    java: ToolServer, producer: TransactionalProducer, peer: Peer, topic: str
) -> None:
    producer.abort()
    producer.begin()
    producer.send(topic, 0, [b"c"])
    producer.commit()
    wait_until(lambda: last_stable_offset(peer, topic) == 5, "the marker is written")
    server = ("--bootstrap-server", peer.bootstrap, "--topic", topic)

    def consumed(isolation: str, count: int) -> list[str]:
        arguments = (
            "--partition",
            "0",
            "--offset",
            "0",
            "--max-messages",
            str(count),
            "--timeout-ms",
            "15000",
        )
        out = java.tool(CONSOLE_CONSUMER, *server, *arguments, "--isolation-level", isolation).ok()
        return out.splitlines()

    assert consumed("read_committed", 1) == ["c"]
    assert consumed("read_uncommitted", 3) == ["a", "b", "c"]
    offsets = java.tool(GET_OFFSETS, *server, "--time", "latest").ok().splitlines()
    assert f"{topic}:0:{high_watermark(peer, topic)}" in offsets
