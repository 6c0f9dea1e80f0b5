"""Shortcuts to produce and read with confluent-kafka (librdkafka), for tests in several rooms."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.waiting import PATIENCE_SEC, wait_until


def producer(broker: Any, **config: object) -> Producer:
    """A producer; `_` in a setting's name stands for `.` as in `enable_idempotence`."""
    return Producer({"bootstrap.servers": broker.bootstrap, **_dotted(config)})


def send_all(
    client: Producer, topic: str, values: Sequence[bytes | None], partition: int = 0, **fields: Any
) -> list[Message | KafkaError]:
    """Send, flush, and return for each the acknowledged message or its error, in sending order."""
    results: list[Message | KafkaError | None] = [None] * len(values)

    def reporter(index: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            results[index] = message if error is None else error

        return report

    for index, value in enumerate(values):
        client.produce(topic, value, partition=partition, on_delivery=reporter(index), **fields)
        client.poll(0)
    client.flush(PATIENCE_SEC)
    answered = [result for result in results if result is not None]
    assert len(answered) == len(values), f"{len(answered)} of {len(values)} records answered within 30 s"
    return answered


@contextlib.contextmanager
def assigned_consumer(
    broker: Any, topic: str, partition: int = 0, offset: int = 0, **config: object
) -> Iterator[Consumer]:
    """A consumer that reads one partition from an offset on. It must have a group id but joins none."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **_dotted(config),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int, timeout_s: float = PATIENCE_SEC) -> list[Message]:
    """That many records. Raises AssertionError on an error that the consumer reports."""
    messages: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            assert message.error() is None, str(message.error())
            messages.append(message)
        return len(messages) >= count

    wait_until(enough, f"{count} records", timeout_s)
    return messages


def next_error(consumer: Consumer) -> KafkaError:
    """The next error that the consumer reports, which must not be a record."""
    messages: list[Message] = wait_until(lambda: consumer.consume(1, timeout=0.2), "an error")
    error = messages[0].error()
    assert error is not None, f"a record at offset {messages[0].offset()} instead of an error"
    return error


def _dotted(config: dict[str, object]) -> dict[str, object]:
    return {
        name if name in ("log_level", "stats_cb") else name.replace("_", "."): value
        for name, value in config.items()
    }
