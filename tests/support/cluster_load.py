"""Producers that write to a cluster during trouble, and record the answers that they get."""

import itertools
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError
from kafka.errors import for_code

from tests.support import wire
from tests.support.cluster import AWAY, Cluster
from tests.support.history import History
from tests.support.history_checker import Promise, java_producer
from tests.support.java import java_command
from tests.support.ledger import Place, value_of
from tests.support.load import RECONNECT_SECONDS, IdempotentLoad, Load
from tests.support.process import ServerProcess, clean_environment

# A client that a paused broker does not block for a minute.
IMPATIENT: dict[str, object] = {
    "socket_timeout_ms": 3_000,
    "socket_connection_setup_timeout_ms": 1_000,
    "topic_metadata_refresh_interval_ms": 1_000,
}
ANSWER_TIMEOUT_S = 4.0
# After a record to each partition. In a long run as many as brokers and all take on two cores.
PAUSE_S = 0.03 if "KAFSCALE_TEST_CLUSTER_SECONDS" in os.environ else 0.1
RECORDS_PER_REQUEST = 3
SUCCESS = b'"producer_send_success"'
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


class ClusterLoad(IdempotentLoad):
    """librdkafka with idempotence, on any broker of the cluster; an error that it reports is a failure."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        places: list[Place],
        history: History,
        pause_s: float = PAUSE_S,
        **config: object,
    ) -> None:
        super().__init__(
            name,
            cluster,
            places,
            history,
            pause_s=pause_s,
            **{**IMPATIENT, **cluster.clients.writer, **config},
        )
        history.promise(name, Promise.IDEMPOTENT)
        self._cluster = cluster

    def is_led_astray(self, statistics: list[str], unreported: Container[Place]) -> bool:
        return sends_elsewhere(statistics, unreported, self._cluster.leaders)


def sends_elsewhere(
    statistics: list[str], unreported: Container[Place], leaders: Callable[[str], Mapping[int, int]]
) -> bool:
    """True if librdkafka knows the leaders of all that is left, and sends it to other brokers: permanently.

    A leader that changes and changes back, before the first broker's thread has let go of the partition, leaves it
    with the second one (2.16, `rd_kafka_toppar_broker_update`), and no metadata takes it away from there again.
    `leaders`: of a topic, as the cluster says now.
    """
    left = [
        (topic, part["partition"], part["broker"], part["leader"])
        for topic, one in (json.loads(statistics[-1])["topics"] if statistics else {}).items()
        for part in one["partitions"].values()
        if (topic, part["partition"]) in unreported
    ]
    is_defect = bool(left) and all(
        leader == leaders(topic).get(partition) and broker not in (leader, -1)
        for topic, partition, broker, leader in left
    )
    if is_defect:
        print(f"librdkafka sends to others than the leaders: (topic, partition, broker, leader) {left}")
    return is_defect


class RetryingLoad(IdempotentLoad):
    """librdkafka without idempotence: it may store a record twice, and never loses one that it reported."""

    def __init__(
        self, name: str, cluster: Cluster, places: list[Place], history: History, **config: object
    ) -> None:
        plain = {**IMPATIENT, **cluster.clients.writer, "enable_idempotence": False, "acks": "all", **config}
        super().__init__(name, cluster, places, history, pause_s=PAUSE_S, **plain)
        self._history = history
        history.promise(name, Promise.SENT_AGAIN)

    def given_up(self, topic: str, partition: int, value: bytes, error: KafkaError) -> None:
        """A plain producer may; it means only that nothing was promised."""
        self._history.doubt(topic, partition, value, error.name())


class DirectLoad(Load):
    """Raw requests with acks=all to each partition's leader, several in flight, nothing sent twice."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        places: list[Place],
        history: History,
        *,
        in_flight: int = 4,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        super().__init__(name, cluster, places, history)
        self._answer_timeout_s = answer_timeout_s
        self._cluster = cluster
        self._history = history
        self._in_flight = in_flight
        self._numbers = itertools.count()
        self._connections: dict[Place, wire.Wire] = {}
        history.promise(name, Promise.SENT_ONCE)

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                for place in self.places:
                    self._round(place)
                self._stopping.wait(PAUSE_S)
        finally:
            for connection in self._connections.values():
                connection.close()

    def _round(self, place: Place) -> None:
        """Send some requests to one partition, then read all their answers."""
        unanswered: list[list[bytes]] = []
        refused = False
        try:
            connection = self._connection(place)
            for _ in range(self._in_flight):
                unanswered.append(
                    [value_of(self.name, next(self._numbers)) for _ in range(RECORDS_PER_REQUEST)]
                )
                request = wire.produce_request(place[0], {place[1]: wire.batch(unanswered[-1])})
                connection.send(request, wire.PRODUCE_VERSION)
            while unanswered:
                _, answer = wire.receive_produce(connection)
                refused |= not self._answered(place, unanswered.pop(0), answer)
        except AWAY as error:
            refused = True
            self._doubt(place, itertools.chain(*unanswered), type(error).__name__)
        if refused:  # fetch the leaders again
            self._disconnect(place)
            self._stopping.wait(RECONNECT_SECONDS)

    def _connection(self, place: Place) -> wire.Wire:
        if place not in self._connections:
            leader = self._cluster.brokers.get(self._cluster.leaders(place[0]).get(place[1], -1))
            if leader is None:
                raise ConnectionError(f"{place} has no leader")
            self._connections[place] = wire.Wire(leader.host, leader.port, self._answer_timeout_s, leader.tls)
        return self._connections[place]

    def _answered(self, place: Place, values: list[bytes], answer: Any) -> bool:
        """Record the answer to one request; returns if it was acknowledged."""
        code: int = answer.error_code
        if code == 0:
            for n, value in enumerate(values):
                self.ledger.acknowledge(*place, answer.base_offset + n, value)
            return True
        kind = for_code(code)
        self._doubt(place, values, kind.__name__)
        if not kind.retriable:
            self.ledger.fail(f"{self.name}: {place}: error {code} {kind.__name__}, which is not retriable")
        return False

    def _doubt(self, place: Place, values: Iterable[bytes], reason: str) -> None:
        for value in values:
            self._history.doubt(*place, value, reason)

    def _disconnect(self, place: Place) -> None:
        connection = self._connections.pop(place, None)
        if connection is not None:
            connection.close()


# Records that the producer had not taken when it was told to end: one waited for metadata, one came after the end.
NEVER_SENT = (
    "Producer closed while send in progress",
    "Cannot perform operation after producer has been closed",
)


class JavaLoad(ServerProcess):
    """Kafka's own VerifiableProducer with idempotence; it prints every answer, and they are read at the end."""

    def __init__(
        self, number: int, folder: Path, cluster: Cluster, topic: str, history: History, **config: object
    ) -> None:
        super().__init__(java_producer(number), folder)
        self._number = number
        self._topic = topic
        self._history = history
        settings = {
            "enable.idempotence": "true",
            "retries": 2**31 - 1,
            "max.in.flight.requests.per.connection": 5,
            "request.timeout.ms": 3_000,
            "delivery.timeout.ms": 120_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "metadata.max.age.ms": 1_000,
            **cluster.clients.java_writer,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        self._config_file = folder / f"{self.name}.properties"
        self._config_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._bootstrap = cluster.clients.java_writer.get("bootstrap.servers", cluster.bootstrap)
        self._counted_bytes = 0
        self._acknowledged = 0
        history.promise(self.name, Promise.IDEMPOTENT)

    def start(self) -> None:
        command = java_command(
            VERIFIABLE_PRODUCER, "--bootstrap-server", self._bootstrap, "--topic", self._topic,
            "--throughput", "100", "--value-prefix", str(self._number),
            "--producer.config", str(self._config_file),
        )  # fmt: skip
        # its output must not be mixed with its client's log
        command.insert(1, f"-Dorg.slf4j.simpleLogger.logFile={self._config_file.with_suffix('.err')}")
        self.launch(command, clean_environment())

    def clean_exit_code(self) -> int:
        return 128 + 15  # a JVM that SIGTERM ended in good order

    def acknowledged_count(self) -> int:
        """The number of records acknowledged so far. Raises AssertionError if it has exited."""
        assert self.exit_code is None, f"{self.name} ended by itself\n{self.log_tail()}"
        with self.log_path.open("rb") as log:
            log.seek(self._counted_bytes)
            new = log.read()
        new = new[: new.rfind(b"\n") + 1]  # the last line may not yet be whole
        self._counted_bytes += len(new)
        self._acknowledged += new.count(SUCCESS)
        return self._acknowledged

    def _told(self) -> Iterator[dict[str, Any]]:
        """Its line for each record."""
        for line in self.log_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def finish(self) -> None:
        """Stop it, after the requests in flight, and record its answers in the history."""
        self.stop(timeout_s=150.0)
        for row in self._told():
            if row["name"] == "producer_send_success":
                self._history.acknowledge(
                    row["topic"], row["partition"], row["offset"], row["value"].encode()
                )
            elif row["name"] == "producer_send_error" and row["message"] not in NEVER_SENT:
                self._history.fail(f"{self.name}: {row}")
