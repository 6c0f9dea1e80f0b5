"""A Faust application, tested with a real broker: `pytest examples/testing/test_faust.py`."""

import json

import faust
import pytest

from kafscale.testing import KafkaBroker


def application(bootstrap: str) -> faust.App:
    """Counts words: in your project this is the code under test."""
    app = faust.App("words", broker=f"aiokafka://{bootstrap}", store="memory://", web_enabled=False)
    lines = app.topic("lines", value_type=str, value_serializer="raw")
    counts = app.topic("counts", value_serializer="json")

    @app.agent(lines)
    async def count(stream: faust.Stream[bytes]) -> None:
        async for line in stream:
            await counts.send(value={"words": len(line.split())})

    return app


@pytest.mark.asyncio
async def test_words_are_counted(kafka_broker: KafkaBroker) -> None:
    for topic in ("lines", "counts"):
        kafka_broker.create_topic(topic)
    kafka_broker.produce("lines", "the quick brown fox")
    app = application(kafka_broker.bootstrap)
    await app.start()
    try:
        (record,) = await kafka_broker.aio.wait_for_records("counts", 1, timeout_sec=60)
    finally:
        await app.stop()
    assert json.loads(record.value or b"") == {"words": 4}
