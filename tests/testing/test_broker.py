"""A broker of `kafscale.testing`: topics and records without a client, its life, its errors."""

import asyncio
import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from kafscale.errors import SettingError, StartupError
from kafscale.testing import KafkaBroker, Record, RequestError
from kafscale.testing.home import Home


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as started:
        yield started


def test_records_come_back_as_they_were_produced(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    place = broker.produce(
        "orders", b"\x00value", b"key", headers={"trace": "7", "null": None}, timestamp_ms=5
    )
    assert (place.topic, place.partition, place.offset, place.timestamp_ms) == ("orders", 0, 0, 5)
    headers = (("trace", b"7"), ("null", None))
    assert broker.records("orders") == [Record("orders", 0, 0, 5, b"key", b"\x00value", headers)]


def test_text_is_utf8_and_none_is_null(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", "grün", key="é")
    broker.produce("orders", None)
    assert [(one.key, one.value) for one in broker.records("orders")] == [
        ("é".encode(), "grün".encode()),
        (None, None),
    ]


def test_records_are_in_order_of_partition_and_offset(broker: KafkaBroker) -> None:
    broker.create_topic("orders", partitions=3)
    for number in range(7):
        broker.produce("orders", str(number))
    found = broker.records("orders")
    assert [(one.partition, one.offset) for one in found] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert broker.records("orders", partition=1) == [one for one in found if one.partition == 1]


def test_key_chooses_the_partition_as_in_kafka(broker: KafkaBroker) -> None:
    broker.create_topic("orders", partitions=10)
    # Kafka's own figures (`UtilsTest.testMurmur2`): 21 -> -973932308, foobar -> -790332482
    assert broker.produce("orders", "x", key="21").partition == (-973932308 & 0x7FFFFFFF) % 10
    assert broker.produce("orders", "x", key="foobar").partition == (-790332482 & 0x7FFFFFFF) % 10
    assert broker.produce("orders", "x", key="21", partition=4).partition == 4


def test_many_records_are_all_read(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    value = b"x" * 500_000
    for _ in range(80):  # more than one fetch returns
        broker.produce("orders", value)
    assert [one.offset for one in broker.records("orders")] == list(range(80))


def test_wait_for_records_returns_once_they_are_there(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    writing = threading.Thread(target=lambda: [broker.produce("orders", str(number)) for number in range(20)])
    writing.start()
    assert len(broker.wait_for_records("orders", 20)) == 20
    writing.join()


def test_wait_for_records_says_how_many_there_are(broker: KafkaBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", "one")
    with pytest.raises(TimeoutError, match=r"topic 'orders' has 1 records after 0\.01 s, not 2"):
        broker.wait_for_records("orders", 2, timeout_sec=0.01)


def test_deleted_topic_can_be_created_again(broker: KafkaBroker) -> None:
    for value in ("first", "second"):
        broker.create_topic("orders", configs={"retention.ms": 86_400_000, "compression.type": "lz4"})
        broker.produce("orders", value)
        assert [one.value for one in broker.records("orders")] == [value.encode()]
        broker.delete_topic("orders")
        assert broker.topics() == []


async def test_every_call_can_be_awaited_in_another_loop(broker: KafkaBroker) -> None:
    assert await broker.aio.create_topic("orders", partitions=2) == "orders"
    places = await asyncio.gather(*(broker.aio.produce("orders", str(number)) for number in range(8)))
    assert {place.offset for place in places} == set(range(4))
    assert len(await broker.aio.wait_for_records("orders", 8)) == 8
    assert len(await broker.aio.records("orders", partition=0)) == 4
    assert await broker.aio.topics() == ["orders"]
    assert await broker.aio.committed("nobody") == {}
    await broker.aio.delete_topic("orders")


async def test_broker_starts_and_stops_with_async_with() -> None:
    async with KafkaBroker() as broker:
        await broker.aio.create_topic("orders")
    with pytest.raises(RuntimeError, match="is not running"):
        broker.topics()


def test_errors_name_the_thing(broker: KafkaBroker) -> None:
    broker.create_topic("orders", partitions=2)
    with pytest.raises(RequestError, match="there is no topic 'order'; there are: orders") as missing:
        broker.produce("order", "x")
    assert missing.value.code == "UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(RequestError, match="there is no topic 'order'"):
        broker.records("order")
    with pytest.raises(RequestError, match="there is no topic 'order'"):
        broker.delete_topic("order")
    with pytest.raises(RequestError, match="topic 'orders' has no partition 2: it has 2, from 0 to 1"):
        broker.produce("orders", "x", partition=2)
    with pytest.raises(RequestError, match="topic 'orders' has no partition -1"):
        broker.records("orders", partition=-1)
    with pytest.raises(RequestError, match=r"Unknown topic config name: retntion.ms") as config:
        broker.create_topic("payments", configs={"retntion.ms": 1})
    assert config.value.code == "INVALID_CONFIG"
    with pytest.raises(RequestError, match="Topic 'orders' already exists"):
        broker.create_topic("orders")
    with pytest.raises(RequestError, match="cannot create topic 'a b'"):
        broker.create_topic("a b")
    with pytest.raises(RequestError, match="cannot store a record in orders-0"):
        broker.produce("orders", b"x" * 2_000_000, partition=0)
    with pytest.raises(TypeError, match="the value must be bytes, str or None, not int: 7"):
        broker.produce("orders", 7)  # type: ignore[arg-type]
    assert broker.records("orders") == []


def test_unknown_setting_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(
        TypeError, match="'flush_interval' is not a setting of a broker: did you mean flush_interval_ms"
    ):
        KafkaBroker(flush_interval=5)
    with pytest.raises(TypeError, match=r"'s3_bucket' has no effect here: the stores .* are in memory"):
        KafkaBroker(s3_bucket="records")
    with pytest.raises(SettingError, match=r"FLUSH_INTERVAL_MS='-1' is not legal: it must be a whole number"):
        KafkaBroker(flush_interval_ms=-1)


def test_settings_are_those_of_production_by_name() -> None:
    with KafkaBroker(auto_create_partitions=4, max_message_bytes="1KiB", codec_clients=["*"]) as broker:
        broker.create_topic("orders", partitions=-1)
        assert broker.produce("orders", "x", partition=3).partition == 3
        with pytest.raises(RequestError, match=r"MESSAGE_TOO_LARGE"):
            broker.produce("orders", b"x" * 2000)


def test_broker_that_cannot_start_leaves_nothing() -> None:
    threads = set(threading.enumerate())
    with KafkaBroker() as other:
        taken = KafkaBroker(broker_addr=other.bootstrap)
        with pytest.raises(StartupError, match=f"cannot listen on {other.bootstrap}"):
            taken.start()
        with pytest.raises(RuntimeError, match="is not running"):
            taken.topics()
    assert set(threading.enumerate()) <= threads


def test_broker_is_started_once(broker: KafkaBroker) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        broker.start()


def test_stopped_broker_starts_again_empty() -> None:
    broker = KafkaBroker()
    broker.stop()
    for _ in range(2):
        with broker:
            assert broker.topics() == []
            broker.create_topic("orders")
    broker.stop()


def test_metrics_are_served_on_request_only() -> None:
    with KafkaBroker() as silent:
        assert silent.metrics_url is None
    with KafkaBroker(metrics=True) as broker:
        assert broker.metrics_url is not None
        with urllib.request.urlopen(broker.metrics_url) as reply:
            assert b"kafscale_" in reply.read()


def test_two_brokers_know_nothing_of_each_other(broker: KafkaBroker) -> None:
    with KafkaBroker() as other:
        assert other.bootstrap != broker.bootstrap
        other.create_topic("orders")
        assert broker.topics() == []


def test_blocking_call_in_the_brokers_own_thread_is_refused(broker: KafkaBroker) -> None:
    home: Home = broker._home

    async def block() -> None:
        broker.topics()

    with pytest.raises(RuntimeError, match="would wait for itself"):
        home.thread.call(block())


def test_clients_that_are_still_connected_do_not_delay_the_stop() -> None:
    with contextlib.ExitStack() as connections:
        with KafkaBroker() as broker:
            connected = connections.enter_context(socket.create_connection((broker.host, broker.port)))
        assert connected.recv(1) == b""
