"""A consumer of confluent-kafka, tested with a real broker: `pytest examples/testing/test_confluent.py`."""

from confluent_kafka import Consumer

from kafscale.testing import KafkaBroker, SharedKafka


def total(bootstrap: str, topic: str, group: str, count: int) -> int:
    """Adds up so many numbers: in your project this is the code under test."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    numbers: list[int] = []
    try:
        while len(numbers) < count:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                numbers.append(int(message.value()))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sum(numbers)


def test_numbers_are_added_up(kafka: SharedKafka) -> None:
    topic, group = kafka.topic("numbers", partitions=2), kafka.group()
    for number in (1, 2, 3, 4):
        kafka.produce(topic, str(number))
    assert total(kafka.bootstrap, topic, group, 4) == 10
    kafka.wait_until_consumed(topic, group)


def test_fetch_errors_are_survived(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("numbers")
    kafka_broker.produce("numbers", "7")
    failing = kafka_broker.fail("Fetch", "KAFKA_STORAGE_ERROR", times=2)
    assert total(kafka_broker.bootstrap, "numbers", "billing", 1) == 7
    assert failing.hits == 2
