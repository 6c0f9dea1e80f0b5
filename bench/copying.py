"""The driver that reads, and writes what it read, in transactions of a given time: confluent-kafka (librdkafka)."""

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.librdkafka import LibrdkafkaError
from bench.meter import Meter
from bench.specs import CopySpec, Transacted

_TIMEOUT_SECONDS = 60.0
_TAKEN_AT_ONCE = 2_000


def drive_copy(spec: CopySpec) -> Transacted:
    """Copies the source again and again. `milliseconds`: how long the ends of transactions took."""
    producer = Producer({"bootstrap.servers": spec.bootstrap, **spec.producer_properties})
    consumer = Consumer({"bootstrap.servers": spec.bootstrap, **spec.consumer_properties})
    begins = [TopicPartition(spec.source, partition, 0) for partition in range(len(spec.ends))]
    try:
        producer.init_transactions(_TIMEOUT_SECONDS)
        consumer.assign(begins)
        return _Copy(spec, producer, consumer).run()
    finally:
        consumer.close()


class _Copy:
    def __init__(self, spec: CopySpec, producer: Producer, consumer: Consumer) -> None:
        self._spec = spec
        self._producer = producer
        self._consumer = consumer
        self._positions = dict.fromkeys(range(len(spec.ends)), 0)

    def run(self) -> Transacted:
        spec, meter = self._spec, Meter(self._spec.broker_pids)
        begin = moved = time.monotonic()
        opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
        copied, ends = 0, []
        while not meter.is_open or time.monotonic() < closes:
            if meter.never_opened and time.monotonic() >= opens:
                meter.open(copied)
            count, took = self._transaction()
            copied += count
            if meter.is_open:
                ends.append(took * 1000)
            if count:
                moved = time.monotonic()
            elif time.monotonic() - moved > _TIMEOUT_SECONDS:
                raise LibrdkafkaError(f"nothing came to be copied for {_TIMEOUT_SECONDS:.0f} s")
        meter.close(copied)
        window = meter.window(spec.record_bytes, total_records=copied)
        return Transacted(window=window, milliseconds=sorted(ends), asked_again=0)

    def _transaction(self) -> tuple[int, float]:
        """One transaction: how many records, and how many seconds its end took."""
        self._producer.begin_transaction()
        until = time.monotonic() + self._spec.commit_ms / 1000
        count = 0
        message: Any
        while (left := until - time.monotonic()) > 0:
            for message in self._consumer.consume(_TAKEN_AT_ONCE, timeout=min(left, 0.05)):
                if message.error() is not None:
                    raise LibrdkafkaError(str(message.error()))
                self._copy(message.value(), message.partition())
                self._positions[message.partition()] = message.offset() + 1
                count += 1
            self._producer.poll(0)
        began = time.monotonic()
        offsets = [TopicPartition(self._spec.source, *position) for position in self._positions.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, metadata, _TIMEOUT_SECONDS)
        self._producer.commit_transaction(_TIMEOUT_SECONDS)
        took = time.monotonic() - began
        for partition, position in self._positions.items():
            if position >= self._spec.ends[partition]:
                self._positions[partition] = 0
                self._consumer.seek(TopicPartition(self._spec.source, partition, 0))
        return count, took

    def _copy(self, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self._spec.target, value, partition=partition)
                return
            except BufferError:  # its queue is full
                self._producer.poll(0.01)
