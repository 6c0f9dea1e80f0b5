"""confluent-kafka, which is librdkafka."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.compat.security.clients import Refused
from tests.support.client_security import librdkafka_config
from tests.support.security_plan import MECHANISMS, OAUTH, Access
from tests.support.waiting import PATIENCE_SEC, wait_until

KEPT_OUT = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT)


class Librdkafka:
    """The client of C programs and of half the languages."""

    name = "librdkafka"
    mechanisms: tuple[str, ...] = MECHANISMS

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition."""
        admin = AdminClient(config(access))
        admin.poll(0)  # serves the callback that gives the token
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_SEC)

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values, and give the first error."""
        errors: list[KafkaError] = []

        def report(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer(config(access))
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=report)
        assert producer.flush(PATIENCE_SEC) == 0
        return str(errors[0].name()) if errors else None

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""
        consumer = Consumer(
            {**config(access), "group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}
        )
        values: list[str] = []
        deadline = time.monotonic() + PATIENCE_SEC
        try:
            consumer.subscribe([topic])
            while len(values) < count:
                assert time.monotonic() < deadline, f"{values} of {count} records"
                for message in consumer.consume(count - len(values), timeout=0.5):
                    error = message.error()
                    if error is not None:
                        raise Refused(error.name())
                    values.append((message.value() or b"").decode())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values

    def topics(self, access: Access) -> list[str]:
        """All topics that it is told of."""
        producer = Producer(config(access))
        producer.poll(0)
        return sorted(producer.list_topics(timeout=PATIENCE_SEC).topics)

    def refusal(self, access: Access) -> str | None:
        """The name of the first error that says that it cannot come in; None when it gets an answer."""
        error = self._first_error(access)
        return None if error is None else str(error.name())

    def refusal_text(self, access: Access) -> str:
        """The text of that error, without the address and the time that stand around it."""
        error = self._first_error(access)
        assert error is not None
        return str(error.str()).partition("bootstrap: ")[2].partition(" (after ")[0]

    def _first_error(self, access: Access) -> KafkaError | None:
        errors: list[KafkaError] = []
        producer = Producer({**config(access), "error_cb": errors.append, "log_level": 0})

        def answer() -> bool:
            producer.poll(0.05)
            if any(error.code() in KEPT_OUT for error in errors):
                return True
            try:
                producer.list_topics(timeout=0.3)
            except KafkaException:
                return False
            return True

        wait_until(answer, "an answer or an error")
        return next((error for error in errors if error.code() in KEPT_OUT), None)


def config(access: Access) -> dict[str, Any]:
    """Its settings; a token comes from a callback."""
    settings = librdkafka_config(access)
    if access.mechanism == OAUTH:
        settings["oauth_cb"] = lambda _: (access.token, time.time() + 3_600)
    return settings
