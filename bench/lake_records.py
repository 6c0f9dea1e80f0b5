"""The records of the lake benchmark: the same ones, in the same batches, for every broker."""

import time
from dataclasses import dataclass
from itertools import cycle

from bench.brokers import Broker
from bench.librdkafka import BatchTemplate, LibrdkafkaError, Producer
from bench.payloads import record_pool

CODECS = ("none", "snappy", "zstd", "lz4", "gzip")

_CHUNK_BYTES = 64 * 1024
_IN_FLIGHT_BYTES = 64 * 1024 * 1024
_STALL_SECONDS = 60.0
_POLL_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One topic: `records` with a key of 16 bytes and a value of `record_bytes`, in turn to each partition."""

    record_bytes: int
    codec: str
    records: int
    partitions: int
    batch_bytes: int
    payload: str

    @property
    def topic(self) -> str:
        return f"lake-{self.records}-of-{self.record_bytes}-{self.codec}"

    @property
    def title(self) -> str:
        return f"{self.record_bytes} B, {self.codec}"


def write(dataset: Dataset, broker: Broker) -> None:
    """Create the topic and write it; every record is acknowledged. Raises `LibrdkafkaError`."""
    with broker.client() as client:
        client.create_topic(dataset.topic, dataset.partitions)
    producer = Producer(dataset.topic, _properties(dataset, broker))
    try:
        _send(dataset, producer)
    finally:
        producer.close()


def _properties(dataset: Dataset, broker: Broker) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "acks": "all",
        # A batch ends when it is full, so that its content does not depend on how fast a broker answers.
        "linger.ms": "1000",
        "batch.size": str(dataset.batch_bytes),
        "batch.num.messages": "10000",
        "compression.type": dataset.codec,
        "queue.buffering.max.messages": "0",
        "queue.buffering.max.kbytes": "1048576",
    }


def _send(dataset: Dataset, producer: Producer) -> None:
    values = record_pool(dataset.payload, dataset.record_bytes)
    keys = [b"key-%012d" % number for number in range(len(values))]
    chunk = max(1, _CHUNK_BYTES // dataset.record_bytes)
    templates = cycle(
        BatchTemplate(values[at : at + chunk], keys[at : at + chunk]) for at in range(0, len(values), chunk)
    )
    partitions = cycle(range(dataset.partitions))
    limit = max(chunk, _IN_FLIGHT_BYTES // dataset.record_bytes)
    queued = delivered = 0
    last_moved = time.monotonic()
    while delivered < dataset.records:
        while queued < dataset.records and queued - delivered < limit:
            batch = next(templates)
            queued += producer.produce(next(partitions), batch, dataset.records - queued)
        moved = producer.poll(_POLL_MS)
        delivered += moved
        if moved:
            last_moved = time.monotonic()
        elif time.monotonic() - last_moved > _STALL_SECONDS:
            raise LibrdkafkaError(f"{dataset.topic}: nothing was acknowledged for {_STALL_SECONDS:g} s")
