"""Connections that send nonsense, nothing, too much, or never read: no harm to the broker or to others."""

import contextlib
import random
import struct
import time
from collections.abc import Iterator

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.support import librdkafka, wire
from tests.support.broker import KafscaleBroker
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until
from tests.support.wire import Wire

FRAME_MAX_BYTES = 4 * 2**20
IDLE_MS = 2000
MANY = 300
SEED = random.SystemRandom().randrange(2**32)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    """A broker with a small frame limit; it must have survived all of this file and stop cleanly."""
    started = KafscaleBroker(
        tmp_path_factory.mktemp("hostile"),
        flush_interval_ms=5,
        frame_max_bytes=FRAME_MAX_BYTES,
        connections_max_idle_ms=IDLE_MS,
    )
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.close()


@pytest.fixture
def topic(broker: KafscaleBroker) -> str:
    name = unique_name()
    create_topic(broker, name)
    return name


def assert_works(broker: KafscaleBroker, topic: str, within_s: float = 2.0) -> None:
    """A new connection produces and reads in good time."""
    began = time.monotonic()
    with wire.connect(broker) as connection:
        base = wire.produce(connection, topic, 0, wire.batch([b"alive"])).base_offset
        assert wire.read_all(connection, topic, 0, base) == [(base, b"alive")]
    assert time.monotonic() - began < within_s


def test_oversized_frame_closes_connection_before_its_bytes(broker: KafscaleBroker, topic: str) -> None:
    with wire.connect(broker) as connection:
        connection.send_bytes(struct.pack(">i", FRAME_MAX_BYTES + 1))
        connection.assert_closed_by_peer()
    assert_works(broker, topic)


def test_announced_but_unsent_frame_bytes_cost_no_memory(broker: KafscaleBroker, topic: str) -> None:
    before = broker.memory_bytes()
    with contextlib.ExitStack() as opened:
        for _ in range(50):
            connection = opened.enter_context(wire.connect(broker))
            connection.send_bytes(struct.pack(">i", FRAME_MAX_BYTES) + b"\x00\x00\x00\x09")
        assert_works(broker, topic)
        assert broker.memory_bytes() - before < 40 * 2**20  # announced: 200 MiB


def test_silent_half_frame_is_closed_without_harm(broker: KafscaleBroker, topic: str) -> None:
    request = wire.produce_request(topic, {0: wire.batch([b"half"])})
    request.API_VERSION = wire.PRODUCE_VERSION
    request.with_header(correlation_id=1, client_id="half")
    frame = request.encode(framed=True, header=True)
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(wire.connect(broker)) for _ in range(20)]
        for n, connection in enumerate(silent):
            connection.send_bytes(frame[: 1 + n * (len(frame) - 2) // 20])
        assert_works(broker, topic)
        for connection in silent:
            connection.assert_closed_by_peer()  # after KAFSCALE_CONNECTIONS_MAX_IDLE_MS
    with wire.connect(broker) as connection:
        assert b"half" not in {value for _, value in wire.read_all(connection, topic, 0)}


def test_a_frame_that_comes_byte_by_byte_is_answered(broker: KafscaleBroker, topic: str) -> None:
    request = wire.produce_request(topic, {0: wire.batch([b"slowly"])})
    request.API_VERSION = wire.PRODUCE_VERSION
    request.with_header(correlation_id=1, client_id="slow")
    with wire.connect(broker) as connection:
        for byte in request.encode(framed=True, header=True):
            connection.send_bytes(bytes([byte]))
        assert wire.receive_produce(connection)[1].error_code == 0
    with wire.connect(broker) as connection:
        assert wire.read_all(connection, topic, 0) == [(0, b"slowly")]


def test_random_garbage_in_every_part_of_a_request(broker: KafscaleBroker, topic: str) -> None:
    print(f"seed {SEED}")
    generator = random.Random(SEED)
    for n in range(MANY):
        with contextlib.suppress(ConnectionError), wire.connect(broker) as connection:
            connection.send_bytes(_garbage(generator, topic, kind=n % 3))
            connection.socket.shutdown(1)
            connection.socket.recv(65_536)  # an answer or the end, but no silence
    assert_works(broker, topic)


def test_a_client_that_never_reads_its_replies_stops_only_itself(broker: KafscaleBroker) -> None:
    name = unique_name()
    create_topic(broker, name, configs={"compression.type": "producer"})
    librdkafka.send_all(librdkafka.producer(broker), name, [random.randbytes(100_000)] * 100)
    before = broker.memory_bytes()
    with wire.connect(broker) as deaf:
        request = wire.fetch_request(name, {0: 0}, partition_max_bytes=10 << 20)
        request.API_VERSION = wire.FETCH_VERSION
        request.with_header(correlation_id=1, client_id="deaf")
        frame = request.encode(framed=True, header=True)
        deaf.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):  # where the broker has stopped reading from it
            deaf.send_bytes(frame * 500)  # asks for 5 GB
        for _ in range(5):
            assert_works(broker, name)
        assert broker.memory_bytes() - before < 150 * 2**20


def test_clients_that_vanish_in_the_middle_leave_nothing_behind(broker: KafscaleBroker, topic: str) -> None:
    for n in range(100):
        with wire.connect(broker) as connection:
            connection.send(wire.produce_request(topic, {0: wire.batch([b"%d" % n])}), wire.PRODUCE_VERSION)
            connection.send(wire.fetch_request(topic, {0: 10**6}, max_wait_ms=60_000), wire.FETCH_VERSION)
    assert_works(broker, topic)
    wait_until(lambda: _connections(broker) <= 1, "the connections are gone")


def _connections(broker: KafscaleBroker) -> float:
    """The value of the broker's own metric."""
    metrics = broker.http_get("/metrics")[1]
    rows = [line for line in metrics.splitlines() if line.startswith("kafscale_connections ")]
    assert rows, "no metric kafscale_connections"
    return float(rows[0].split()[1])


def _garbage(generator: random.Random, topic: str, kind: int) -> bytes:
    """Bytes only; a frame of garbage; a good request with a few bytes changed."""
    if kind == 0:
        return generator.randbytes(generator.randrange(1, 300))
    if kind == 1:
        key, version = generator.randrange(0, 70), generator.randrange(0, 16)
        body = struct.pack(">hhih", key, version, 1, 0) + generator.randbytes(generator.randrange(0, 200))
        return struct.pack(">i", len(body)) + body
    request = wire.produce_request(topic, {0: wire.batch([b"good"] * 3)})
    request.API_VERSION = wire.PRODUCE_VERSION
    request.with_header(correlation_id=1, client_id="fuzz")
    frame = bytearray(request.encode(framed=True, header=True))
    for _ in range(generator.randrange(1, 4)):
        frame[generator.randrange(4, len(frame))] = generator.randrange(256)
    return bytes(frame)


def test_connections_over_limit_are_closed_and_others_served(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    limited = KafscaleBroker(tmp_path_factory.mktemp("limited"), max_connections=5)
    try:
        limited.start()
        with contextlib.ExitStack() as opened:
            served = [opened.enter_context(wire.connect(limited)) for _ in range(5)]
            for connection in served:
                _greet(connection)
            over = opened.enter_context(wire.connect(limited))
            over.assert_closed_by_peer()
            for connection in served:
                _greet(connection)
        wait_until(lambda: _answers(limited), "a place is free again")
        limited.stop()
    finally:
        limited.close()


def _greet(connection: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    assert connection.call(request, ApiVersionsResponse, 3).error_code == 0


def _answers(broker: KafscaleBroker) -> bool:
    try:
        with wire.connect(broker) as connection:
            _greet(connection)
    except (wire.ConnectionEndedError, ConnectionError):
        return False
    return True
