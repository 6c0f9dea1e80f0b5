"""A FastStream application, tested with a real broker: `pytest examples/testing/test_faststream.py`."""

import pytest
from faststream.kafka import KafkaBroker as Broker
from pydantic import BaseModel

from kafscale.testing import KafkaBroker


class Order(BaseModel):
    item: str
    count: int


def application(bootstrap: str) -> Broker:
    """Doubles each order: in your project this is the code under test."""
    broker = Broker(bootstrap)

    @broker.subscriber("orders", group_id="doubler", auto_offset_reset="earliest")
    @broker.publisher("doubled")
    async def double(order: Order) -> Order:
        return Order(item=order.item, count=order.count * 2)

    return broker


@pytest.mark.asyncio
async def test_orders_are_doubled(kafka_broker: KafkaBroker) -> None:
    for topic in ("orders", "doubled"):
        kafka_broker.create_topic(topic)
    kafka_broker.produce("orders", '{"item": "tea", "count": 2}')
    async with application(kafka_broker.bootstrap) as app:
        await app.start()
        (record,) = await kafka_broker.aio.wait_for_records("doubled", 1)
    assert Order.model_validate_json(record.value or b"") == Order(item="tea", count=4)


@pytest.mark.asyncio
async def test_publication_survives_an_error_of_the_broker(kafka_broker: KafkaBroker) -> None:
    for topic in ("orders", "doubled"):
        kafka_broker.create_topic(topic)
    failing = kafka_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="doubled")
    async with application(kafka_broker.bootstrap) as app:
        await app.start()
        await app.publish(Order(item="tea", count=1), "orders")
        await kafka_broker.aio.wait_for_records("doubled", 1)
    assert failing.hits == 1
