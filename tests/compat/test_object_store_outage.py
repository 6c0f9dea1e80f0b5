"""Real clients through an outage of the object store: nothing is lost, repeated, or acknowledged falsely."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from kafscale.ops.store_health import StoreState
from kafscale.protocol.error_codes import ErrorCode
from tests.support import librdkafka, wire
from tests.support.in_process_broker import in_process_broker, until
from tests.support.java import JavaRecord, ToolServer
from tests.support.on_uvloop import on_uvloop
from tests.support.outages import Outage, SwitchedObjectStore
from tests.support.waiting import PATIENCE_SEC

pytestmark = pytest.mark.skipif(
    os.environ.get("KAFSCALE_TEST_PEER") == "kafka", reason="Apache Kafka has no object store"
)

# What the documentation promises (docs/operations.md), with room for a busy machine.
NOTICED_SEC = 25.0  # default clients wait for 30 s
RESUMED_SEC = PATIENCE_SEC

Send = Callable[[str, str, list[bytes]], list[object]]
"""Sends values to a topic of a broker; gives for each None, or what went wrong."""


@dataclass(frozen=True)
class Address:
    bootstrap: str


def send_with_librdkafka(bootstrap: str, topic: str, values: list[bytes]) -> list[object]:
    client: Producer = librdkafka.producer(Address(bootstrap), enable_idempotence=True, log_level=2)
    sent = librdkafka.send_all(client, topic, values)
    return [None if hasattr(one, "offset") else one for one in sent]


def send_with_kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> list[object]:
    client = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        futures = [client.send(topic, value) for value in values]
        for future in futures:
            future.get(PATIENCE_SEC)
        return [None] * len(futures)
    finally:
        client.close()


def send_with_aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> list[object]:
    async def send() -> list[object]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as client:
            futures = [await client.send(topic, value) for value in values]
            results = await asyncio.gather(*futures, return_exceptions=True)
            return [one if isinstance(one, BaseException) else None for one in results]

    return asyncio.run(send())


def send_with(java: ToolServer) -> Send:
    def send(bootstrap: str, topic: str, values: list[bytes]) -> list[object]:
        rows = java.produce(
            topic, [JavaRecord(value=value) for value in values], {"bootstrap.servers": bootstrap}
        )
        return [row.get("error") for row in rows]

    return send


@on_uvloop
async def through_an_outage(senders: dict[str, Send], *, phases: tuple[str, ...]) -> None:
    """Of the senders' records, those of `during` wait already when the outage is known; the rest is refused."""
    objects = SwitchedObjectStore()
    async with in_process_broker(objects=objects) as broker, broker.connect() as client:
        topic, bootstrap = await broker.create_topic(), f"127.0.0.1:{broker.port}"
        await broker.create_topic("trigger")

        def begin(name: str, phase: str) -> asyncio.Task[list[object]]:
            values = [f"{name} {phase} {number}".encode() for number in range(50)]
            return asyncio.create_task(asyncio.to_thread(senders[name], bootstrap, topic, values))

        async def fetched() -> list[bytes | None]:
            part = (await client.fetch(topic, {0: 0}, max_wait_ms=0))[0]
            assert part.error_code == 0
            return [value for _, value in wire.records_in(part.records)]

        assert not any(map(any, await asyncio.gather(*(begin(name, "before") for name in senders))))
        before = await fetched()
        assert len(before) == 50 * len(senders)

        objects.switch.go_away(Outage.FAILS)
        began = time.monotonic()
        await client.send_produce("trigger", {0: wire.batch([b"x"])}, timeout_ms=1)
        assert (await client.receive_produce())[1][0].error_code == ErrorCode.REQUEST_TIMED_OUT
        sending = [begin(name, phase) for name in senders for phase in phases if phase == "during"]
        health = broker.process.basics.object_store_health
        await until(lambda: health.refuses_produce, "the outage is known")
        assert time.monotonic() - began < NOTICED_SEC
        produce = next(api for name, api in broker.metrics.apis.items() if name == "PRODUCE")
        refused = ErrorCode.NOT_ENOUGH_REPLICAS
        # Those that come now are refused, again and again, but not in haste; those before wait.
        sending += [begin(name, phase) for name in senders for phase in phases if phase == "refused"]
        await until(lambda: produce.errors[refused] >= 4 * len(senders), "all have been refused")
        assert await fetched() == before
        assert not any(task.done() for task in sending)

        objects.switch.come_back()
        began = time.monotonic()
        outcomes = await asyncio.wait_for(asyncio.gather(*sending), RESUMED_SEC)
        assert not any(map(any, outcomes)), outcomes
        assert not health.refuses_produce
        # Reads are judged apart, and their own probes may have succeeded a little later than those of writes.
        await until(lambda: health.state is StoreState.HEALTHY, "reads are healthy again as well")
        stored = Counter[Any](await fetched())
        print(f"resumed after {time.monotonic() - began:.1f} s, {produce.errors[refused]} times refused")
        assert set(stored.values()) == {1}
        assert len(stored) == 50 * len(senders) * (1 + len(phases))


def test_librdkafka_and_the_python_clients_wait_for_the_return() -> None:
    senders: dict[str, Send] = {
        "librdkafka": send_with_librdkafka,
        "kafka-python": send_with_kafka_python,
        "aiokafka": send_with_aiokafka,
    }
    through_an_outage(senders, phases=("during", "refused"))


def test_a_java_producer_waits_for_the_return(java: ToolServer) -> None:
    # One JVM does one thing at a time.
    through_an_outage({"java": send_with(java)}, phases=("refused",))
