"""Clients that read one partition from given offsets on, each up to a given one: `READERS`."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.support.compacted_topics import Update
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC

WHOLE_FETCHES = 1 << 20
ONE_BATCH_FETCHES = 1
"""The size of a fetch: whatever fits, or the first batch alone, as both brokers always send it."""

FETCH_WAIT_MS = 10
"""A fetch at the end of the partition is in the way of the next beginning for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """From each of the beginnings one read of partition 0, until a record at `last_offset` or above has come."""

    bootstrap: str
    topic: str
    begins: Sequence[int]
    last_offset: int
    fetch_bytes: int = WHOLE_FETCHES


class _OneRead:
    """The records read since one beginning. `add` returns True at its end."""

    def __init__(self, reads: Reads, begin: int) -> None:
        self._last_offset = reads.last_offset
        self._begin = begin
        self._deadline = time.monotonic() + PATIENCE_SEC
        self.updates: list[Update] = []

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        assert key is not None, f"a record without a key at {offset}"
        self.updates.append(Update(offset, key, value))
        return offset >= self._last_offset

    def check_time(self) -> None:
        at = self.updates[-1].offset if self.updates else "none"
        assert time.monotonic() < self._deadline, f"from {self._begin}: stalled after offset {at}"


def librdkafka_reads(reads: Reads) -> Iterator[tuple[int, list[Update]]]:
    """confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": reads.bootstrap,
            "group.id": unique_name("compaction"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.message.max.bytes": reads.fetch_bytes,
        }
    )
    with contextlib.closing(consumer):
        for begin in reads.begins:
            consumer.assign([TopicPartition(reads.topic, 0, begin)])
            yield begin, _librdkafka_read(consumer, _OneRead(reads, begin))


def _librdkafka_read(consumer: Any, one: _OneRead) -> list[Update]:
    while True:
        one.check_time()
        for message in consumer.consume(1000, 0.01):
            assert message.error() is None, message.error()
            if one.add(message.offset(), message.key(), message.value()):
                return one.updates


def kafka_python_reads(reads: Reads) -> Iterator[tuple[int, list[Update]]]:
    """kafka-python."""
    consumer = KafkaConsumer(
        bootstrap_servers=reads.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=reads.fetch_bytes,
    )
    partition = PythonPartition(reads.topic, 0)
    with contextlib.closing(consumer):
        consumer.assign([partition])
        for begin in reads.begins:
            consumer.seek(partition, begin)
            yield begin, _kafka_python_read(consumer, partition, _OneRead(reads, begin))


def _kafka_python_read(consumer: Any, partition: Any, one: _OneRead) -> list[Update]:
    while True:
        one.check_time()
        for record in consumer.poll(100).get(partition, ()):
            if one.add(record.offset, record.key, record.value):
                return one.updates


def aiokafka_reads(reads: Reads) -> Iterator[tuple[int, list[Update]]]:
    """aiokafka."""

    async def everything() -> list[tuple[int, list[Update]]]:
        return [found async for found in _aiokafka_reads(reads)]

    yield from asyncio.run(everything())


async def _aiokafka_reads(reads: Reads) -> AsyncIterator[tuple[int, list[Update]]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=reads.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=reads.fetch_bytes,
    )
    partition = AioPartition(reads.topic, 0)
    await consumer.start()
    try:
        consumer.assign([partition])
        for begin in reads.begins:
            consumer.seek(partition, begin)
            yield begin, await _aiokafka_read(consumer, partition, _OneRead(reads, begin))
    finally:
        await consumer.stop()


async def _aiokafka_read(consumer: Any, partition: Any, one: _OneRead) -> list[Update]:
    while True:
        one.check_time()
        for record in (await consumer.getmany(partition, timeout_ms=100)).get(partition, ()):
            if one.add(record.offset, record.key, record.value):
                return one.updates


READERS: dict[str, Callable[[Reads], Iterator[tuple[int, list[Update]]]]] = {
    "librdkafka": librdkafka_reads,
    "kafka-python": kafka_python_reads,
    "aiokafka": aiokafka_reads,
}
