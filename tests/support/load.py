"""Producers that keep writing while brokers start and stop, and enter every acknowledgement in a ledger."""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Container
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support import librdkafka, wire
from tests.support.ledger import Ledger, Place, value_of

CLIENT_CONFIG: dict[str, object] = {
    "enable_idempotence": True,
    "linger_ms": 2,
    "message_timeout_ms": 600_000,
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 100,
    "log_level": 2,
}
# a lost acknowledgement means nothing, so it is no failure
RECONNECT_SECONDS = 0.02
# errors of a broker that starts or stops, or of a store outage
RETRIABLE_CODES = (3, 5, 6, 7, 14, 15, 16, 19, 56)


class Worker:
    """A thread that works until stopped; its exceptions are entered in the ledger as failures."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_to_the_end, name=name)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop starting new work; requests in flight are finished first."""
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} did not end within {timeout_s} s"

    def run(self) -> None:
        raise NotImplementedError

    def _run_to_the_end(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001  (a thread's exception would be lost)
            self.ledger.fail(f"{self.name}: {error!r}")


class Load(Worker):
    """A worker that sends. Base of the producers below."""

    def __init__(self, name: str, broker: Any, places: list[Place], ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.broker = broker
        self.places = places


class IdempotentLoad(Load):
    """librdkafka with idempotence: it sends again after a crash, without duplicates."""

    def __init__(
        self,
        name: str,
        broker: Any,
        places: list[Place],
        ledger: Ledger,
        *,
        pause_s: float = 0.0,
        **config: object,
    ) -> None:
        super().__init__(name, broker, places, ledger)
        self._pause_s = pause_s  # after one record to every place
        self._config = {**CLIENT_CONFIG, **config}
        self._unreported: Counter[Place] = Counter()

    def run(self) -> None:
        statistics: list[str] = []

        def keep(text: str) -> None:
            statistics[:] = [text]

        told = {"statistics_interval_ms": 5_000, "stats_cb": keep}
        client = librdkafka.producer(self.broker, **self._config, **told)
        for number in itertools.count():
            if self._stopping.is_set():
                break
            for topic, partition in self.places:
                self._send(client, topic, partition, value_of(self.name, number))
            client.poll(0.002)
            self._stopping.wait(self._pause_s)
            while len(client) > 2000 and not self._stopping.is_set():
                client.poll(0.05)
        unanswered = client.flush(90)
        if unanswered and not self.is_led_astray(statistics, +self._unreported):
            self.ledger.fail(
                f"{self.name}: {unanswered} records were not answered within 90 s:"
                f" {dict(+self._unreported)}, {_waiting(statistics, +self._unreported)}"
            )

    def _send(self, client: Producer, topic: str, partition: int, value: bytes) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            self._unreported[topic, partition] -= 1
            if error is not None:
                self.given_up(topic, partition, value, error)
                return
            offset = message.offset()
            if offset is None or offset < 0:  # a later batch's acknowledgement covers this one, too
                self.ledger.acknowledge_somewhere(topic, partition, value)
            else:
                self.ledger.acknowledge(topic, partition, offset, value)

        client.produce(topic, value, partition=partition, on_delivery=report)
        self._unreported[topic, partition] += 1

    def is_led_astray(self, statistics: list[str], unreported: Container[Place]) -> bool:
        """True if a defect of the client, which its statistics prove, keeps all that is left from the leader."""
        return False

    def given_up(self, topic: str, partition: int, value: bytes, error: KafkaError) -> None:
        """The client will not retry."""
        self.ledger.fail(f"{self.name}: {topic}-{partition}: {error}")


def _waiting(statistics: list[str], unreported: Container[Place]) -> dict[str, Any]:
    """librdkafka's statistics of the brokers, and of the partitions that have records left."""
    if not statistics:
        return {}
    told = json.loads(statistics[-1])
    brokers = {one["name"]: (one["state"], one["waitresp_cnt"]) for one in told["brokers"].values()}
    partitions = {
        f"{topic}-{index}": {name: part[name] for name in _OF_PARTITION}
        for topic, one in told["topics"].items()
        for index, part in one["partitions"].items()
        if part["msgq_cnt"]
        or part["xmit_msgq_cnt"]
        or part["msgs_inflight"]
        or (topic, part["partition"]) in unreported
    }
    queued = {name: told[name] for name in ("msg_cnt", "replyq")}
    return {"queued": queued, "brokers": brokers, "partitions": partitions, "eos": told.get("eos")}


_OF_PARTITION = (
    "broker", "leader", "msgq_cnt", "xmit_msgq_cnt", "msgs_inflight", "next_ack_seq", "next_err_seq", "acked_msgid",
)  # fmt: skip


class PipelinedLoad(Load):
    """Raw requests with acks=all, several in flight on one connection, nothing sent twice."""

    def __init__(
        self,
        name: str,
        broker: Any,
        places: list[Place],
        ledger: Ledger,
        *,
        in_flight: int,
        codec: str = "none",
    ) -> None:
        super().__init__(name, broker, places, ledger)
        self._in_flight = in_flight
        self._codec = codec
        self._numbers = itertools.count()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with wire.connect(self.broker) as connection:
                    while not self._stopping.is_set():
                        self._round(connection)
            except (OSError, wire.ConnectionEndedError):
                time.sleep(RECONNECT_SECONDS)

    def _round(self, connection: wire.Wire) -> None:
        """Send some requests, then read all their answers."""
        sent: list[tuple[Place, list[bytes]]] = []
        for _ in range(self._in_flight):
            for topic, partition in self.places:
                values = [value_of(self.name, next(self._numbers)) for _ in range(5)]
                records = wire.batch(values, codec=self._codec)
                connection.send(wire.produce_request(topic, {partition: records}), wire.PRODUCE_VERSION)
                sent.append(((topic, partition), values))
        for (topic, partition), values in sent:
            _, answer = wire.receive_produce(connection)
            if answer.error_code == 0:
                for n, value in enumerate(values):
                    self.ledger.acknowledge(topic, partition, answer.base_offset + n, value)
            elif answer.error_code not in RETRIABLE_CODES:
                self.ledger.fail(f"{self.name}: {topic}-{partition}: error code {answer.error_code}")
