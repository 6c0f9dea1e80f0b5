"""A plaintext cluster becomes one with TLS, passwords and access rules, and no client is without a listener."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kafscale.operator.schema.security_schema import TRANSITION_PORT
from tests.support.etcd_server import etcd_server
from tests.support.kube_api import KubeApi
from tests.support.librdkafka import take
from tests.support.operated_users import CLUSTER, OperatedUsers, make_topic, produced, topics_of
from tests.support.operator_process import OperatorProcess
from tests.support.s3_server import s3_server
from tests.support.waiting import PATIENCE_SEC, wait_until

PLAINTEXT = {"protocol": "PLAINTEXT"}
BOTH = {
    "protocol": "PLAINTEXT",
    "transition": {"protocol": "SASL_SSL"},
    "authorizer": "acl",
    "superUsers": ["User:ANONYMOUS"],
}
CHANGED = {
    "protocol": "SASL_SSL",
    "transition": {"protocol": "SASL_SSL"},
    "authorizer": None,
    "superUsers": None,
}
RULES = {
    "acls": [
        {"resource": {"type": "topic", "name": "orders"}, "operations": ["Read", "Write"]},
        {"resource": {"type": "group", "name": "unused"}, "operations": ["Read"]},
    ]
}


@pytest.fixture
def cluster(api: KubeApi, operator: OperatorProcess, tmp_path: Path) -> Iterator[OperatedUsers]:
    """Two brokers that serve plaintext."""
    with etcd_server(tmp_path) as etcd, s3_server(tmp_path) as s3:
        found = OperatedUsers(api, etcd, s3, tmp_path, PLAINTEXT)
        try:
            found.start_brokers(2)
            yield found
        finally:
            found.close()


class Sender:
    """Sends numbers, each after the last one was acknowledged, until stopped."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self.sent = 0
        self.errors: list[KafkaError] = []
        self._producer = Producer({**client, "enable.idempotence": True})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.wait_for_more()

    def wait_for_more(self) -> None:
        """Wait until two more are acknowledged: it is let in now."""
        before = self.sent
        wait_until(lambda: self.sent > before + 1 or self.errors, "records are acknowledged")
        assert self.errors == []

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SEC)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self.errors:
            self._producer.produce("orders", b"%d" % self.sent, on_delivery=self._delivered)
            self._producer.flush(PATIENCE_SEC)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.sent += 1
        else:
            self.errors.append(error)


@contextmanager
def sending(client: Mapping[str, Any]) -> Iterator[Sender]:
    """A client that sends in the block, and that no record failed."""
    sender = Sender(client)
    sender.start()
    try:
        yield sender
        sender.wait_for_more()
    finally:
        sender.stop()
    assert sender.errors == []


def values(client: Mapping[str, Any], count: int) -> list[int]:
    consumer = Consumer({**client, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        return [int(message.value() or b"") for message in take(consumer, count)]
    finally:
        consumer.close()


def test_clients_go_on_while_the_protocol_changes(cluster: OperatedUsers) -> None:
    plain = {"bootstrap.servers": cluster.bootstrap(), "log_level": 0}
    make_topic(plain, "orders")
    with sending(plain) as old:
        cluster.api.patch(CLUSTER, "c", {"spec": {"security": BOTH}})
        cluster.roll("PLAINTEXT://:9092,TRANSITION://:9096")
        old.wait_for_more()
        cluster.make("app", authentication={"type": "scram-sha-512"}, authorization=RULES)
        cluster.wait_ready("app")
        cluster.wait_ready("c-admin")
        moved = cluster.by_password("app", cluster.password("app"), TRANSITION_PORT)
        assert values(moved, 1) == [0]
    with sending(moved) as new:
        cluster.api.patch(CLUSTER, "c", {"spec": {"security": CHANGED}})
        cluster.roll("INTERNAL://:9092,TRANSITION://:9096")
    assert values(moved, old.sent + new.sent) == [*range(old.sent), *range(new.sent)]
    settled = cluster.by_password("app", cluster.password("app"))
    with sending(settled):
        cluster.api.patch(CLUSTER, "c", {"spec": {"security": {"transition": None}}})
        cluster.roll("INTERNAL://:9092")
    assert produced(plain, "orders", timeout_sec=3) == "MSG_TIMED_OUT"
    assert topics_of(cluster.by_password("app", "wrong")) is None
