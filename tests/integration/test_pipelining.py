"""Pipelined requests fill segments together, in order; many partitions flush side by side; memory is bounded."""

import time

from confluent_kafka import KafkaError
from kafka.protocol.producer import ProduceResponse

from tests.integration.conftest import StartBroker
from tests.support import librdkafka, wire
from tests.support.audit import audit
from tests.support.topics import create_topic

FLUSH_MS = 300


def test_pipelined_requests_are_flushed_together(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=FLUSH_MS, flushes_per_sec=0)
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        began = time.monotonic()
        sent = [
            connection.send(wire.produce_request("t", {0: wire.batch([b"%d" % n])}), wire.PRODUCE_VERSION)
            for n in range(100)
        ]
        answers = [wire.receive_produce(connection) for _ in range(100)]
        took = time.monotonic() - began
        assert [correlation_id for correlation_id, _ in answers] == sent
        assert [(one.error_code, one.base_offset) for _, one in answers] == [(0, n) for n in range(100)]
        assert wire.read_all(connection, "t", 0) == [(n, b"%d" % n) for n in range(100)]
    assert took < 100 * FLUSH_MS / 1000 / 5, f"{took:.1f} s: one flush per request would take 30 s"
    broker.stop()
    assert len(audit(broker.data_folder).segments) <= 5


def test_partitions_of_one_request_are_flushed_concurrently(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=FLUSH_MS, flushes_per_sec=0)
    create_topic(broker, "t", 50)
    with wire.connect(broker) as connection:
        began = time.monotonic()
        request = wire.produce_request("t", {n: wire.batch([b"%d" % n]) for n in range(50)})
        reply = connection.call(request, ProduceResponse, wire.PRODUCE_VERSION)
        took = time.monotonic() - began
    assert {one.error_code for one in reply.responses[0].partition_responses} == {0}
    assert took < 50 * FLUSH_MS / 1000 / 5, f"{took:.1f} s: one flush after the other would take 15 s"


def test_without_an_interval_a_single_record_is_answered_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=0)
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        wire.produce(connection, "t", 0, wire.batch([b"warm up"]))
        began = time.monotonic()
        for _ in range(20):
            wire.produce(connection, "t", 0, wire.batch([b"x"]))
        took = time.monotonic() - began
    print(f"{took / 20 * 1000:.1f} ms per record")
    assert took < 20 * 0.2


def test_a_single_record_does_not_wait_for_the_interval(start_broker: StartBroker) -> None:
    """In a folder; each would take a minute."""
    broker = start_broker(flush_interval_ms=60_000)
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        for _ in range(20):
            wire.produce(connection, "t", 0, wire.batch([b"x"]))


def test_full_buffers_slow_producers_and_bound_memory(start_broker: StartBroker) -> None:
    """80 MB through 4 MiB of buffers: back-pressure, not growth and not loss."""
    broker = start_broker(flush_interval_ms=5, buffer_bytes="4MiB", segment_bytes="1MiB", cache_size="1MiB")
    create_topic(broker, "t", 4)
    at_rest = broker.peak_memory_bytes()
    client = librdkafka.producer(broker, batch_size=500_000, linger_ms=5, compression_type="none")
    value = bytes(range(256)) * 78  # 20 kB
    for _ in range(10):
        for partition in range(4):
            results = librdkafka.send_all(client, "t", [value] * 100, partition=partition)
            assert not [one for one in results if isinstance(one, KafkaError)]
    peak = broker.peak_memory_bytes()
    print(f"at rest {at_rest >> 20} MiB, peak {peak >> 20} MiB")
    assert peak - at_rest < 100 * 2**20
    with wire.connect(broker) as connection:
        for partition in range(4):
            assert wire.list_offset(connection, "t", partition, wire.LATEST).offset == 1000
