"""A test of a consumer with a real broker in its own process: pytest examples/test_consumer.py

The fixture `kafka` comes with Kafscale: one broker for all tests, in memory, which starts in milliseconds. Each test
has topics of its own.
"""

import json
from collections.abc import Generator

from kafka import KafkaConsumer

from kafscale.testing import KafkaBroker, SharedKafka

# --- the code under test: in your project it is in a module of its own


def large_orders(
    bootstrap: str, topic: str, group: str, limit_eur: float, idle_ms: int = 5000
) -> Generator[int]:
    """The numbers of orders above a limit, until no record comes for `idle_ms`; what is no order is skipped.

    An order is committed when the next one is asked for: a consumer that is killed repeats one, and loses none.
    """
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=idle_ms,
    )
    try:
        for record in consumer:
            number = _number_if_above(record.value, limit_eur)
            if number is not None:
                yield number
            consumer.commit()
    finally:
        consumer.close()


def _number_if_above(value: bytes, limit_eur: float) -> int | None:
    try:
        order = json.loads(value)
        return int(order["order"]) if order["amount_eur"] > limit_eur else None
    except (ValueError, KeyError, TypeError):
        return None


# --- its tests


def order(number: int, amount_eur: float) -> str:
    return json.dumps({"order": number, "amount_eur": amount_eur})


def test_large_orders_are_found_and_everything_is_committed(kafka: SharedKafka) -> None:
    topic, group = kafka.topic("orders", partitions=2), kafka.group()
    kafka.produce(topic, order(1, 250.0), partition=0)
    kafka.produce(topic, "no JSON", partition=0)
    kafka.produce(topic, order(2, 5.0), partition=1)
    kafka.produce(topic, order(3, 100.5), partition=1)

    assert sorted(large_orders(kafka.bootstrap, topic, group, 100.0)) == [1, 3]
    assert kafka.committed(group) == {(topic, 0): 2, (topic, 1): 2}


def test_consumer_that_ends_early_repeats_one_order(kafka: SharedKafka) -> None:
    topic, group = kafka.topic("orders"), kafka.group()
    for number in range(3):
        kafka.produce(topic, order(number, 200.0))

    first = large_orders(kafka.bootstrap, topic, group, 100.0)
    assert [next(first), next(first)] == [0, 1]
    first.close()  # before order 1 is committed
    assert list(large_orders(kafka.bootstrap, topic, group, 100.0)) == [1, 2]


def test_consumer_goes_on_after_the_broker_was_killed(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic("orders")
    kafka_broker.produce(topic, order(1, 200.0))

    found = large_orders(kafka_broker.bootstrap, topic, "checks", 100.0, idle_ms=20_000)
    assert next(found) == 1
    kafka_broker.kill()
    kafka_broker.restart()
    kafka_broker.produce(topic, order(2, 300.0))
    assert next(found) == 2
    found.close()
