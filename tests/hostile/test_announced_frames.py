"""Frames that are announced and not sent, or sent in part: no other producer waits, and memory stays bounded."""

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.producer import ProduceResponse

from kafscale.protocol.api_keys import ApiKey
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.waiting import wait_until
from tests.support.watcher import TOPIC, watching

MIB = 1024 * 1024
FRAME_BYTES = 100 * MIB
PRODUCE_START = struct.pack(">hhi", ApiKey.PRODUCE, 7, 1) + b"\x00\x01x" + b"\xff\xff" + bytes(3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        yield broker


class Attacker:
    """A connection that announces a frame and sends what the test says of it, as far as the broker reads."""

    def __init__(self, broker: KafscaleBroker, stack: contextlib.ExitStack) -> None:
        self._socket = stack.enter_context(socket.create_connection((broker.host, broker.port)))
        self._socket.setblocking(False)
        self.unsent = memoryview(b"")

    def announce(self, length: int = FRAME_BYTES) -> None:
        assert self._socket.send(struct.pack(">i", length) + PRODUCE_START) == 4 + len(PRODUCE_START)

    def push(self, data: bytes) -> None:
        self.unsent = memoryview(data)
        self.push_on()

    def push_on(self) -> None:
        """Send what the socket takes now."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self.unsent:
                self.unsent = self.unsent[self._socket.send(self.unsent) :]

    @property
    def is_closed(self) -> bool:
        readable, _, _ = select.select([self._socket], [], [], 0)
        with contextlib.suppress(ConnectionError):
            return bool(readable) and self._socket.recv(1) == b""
        return True


def test_announced_frames_that_do_not_come_delay_no_client(broker: KafscaleBroker) -> None:
    with contextlib.ExitStack() as stack, watching(broker) as watcher:
        for _ in range(3):
            Attacker(broker, stack).announce()
        watcher.wait_for_rounds()
        with wire.connect(broker, 60.0) as large:  # a frame that comes in pieces finds its memory too
            answer = wire.produce(large, TOPIC, 0, wire.batch([bytes(1_000_000)]))
        assert answer.error_code == 0


def test_announced_frame_that_stalls_closes_its_connection(broker: KafscaleBroker) -> None:
    with contextlib.ExitStack() as stack:
        attacker = Attacker(broker, stack)
        attacker.announce()
        wait_until(lambda: attacker.is_closed, "the connection is closed")


def test_half_sent_frames_of_one_address_stay_within_their_share(broker: KafscaleBroker) -> None:
    half = bytes(8 * MIB)
    with contextlib.ExitStack() as stack, watching(broker) as watcher:
        attackers = [Attacker(broker, stack) for _ in range(60)]
        for attacker in attackers:
            attacker.announce()
            attacker.push(half)
        for _ in range(20):
            for attacker in attackers:
                attacker.push_on()
            watcher.wait_for_rounds(1)


def test_half_sent_frames_of_one_address_keep_their_share(broker: KafscaleBroker) -> None:
    """Each is too small to need much, but they are many."""
    with contextlib.ExitStack() as stack, watching(broker, memory_limit_bytes=100 * MIB) as watcher:
        for _ in range(3000):
            attacker = Attacker(broker, stack)
            attacker.announce(60_000)
            attacker.push(bytes(59_000))
        watcher.wait_for_rounds()


def test_requests_kept_behind_one_that_waits_stay_within_a_share(broker: KafscaleBroker) -> None:
    """A long poll, and behind it what the broker may not look at yet."""
    with contextlib.ExitStack() as stack, watching(broker, memory_limit_bytes=80 * MIB) as watcher:
        for _ in range(1000):
            connection = stack.enter_context(wire.connect(broker))
            request = wire.fetch_request(TOPIC, {0: 0}, max_wait_ms=60_000, min_bytes=1 << 30)
            request.API_VERSION = wire.FETCH_VERSION
            request.with_header(correlation_id=1, client_id="tests")
            poll = request.encode(framed=True, header=True)
            connection.socket.setblocking(False)
            connection.socket.send(poll + bytes(poll) * (250_000 // len(poll)))
        watcher.wait_for_rounds()


def test_many_clients_with_large_frames_are_all_served(broker: KafscaleBroker) -> None:
    """Together they are far above the share of their address."""
    values = [bytes([number]) * (900 * 1024) for number in range(120)]
    frames = []
    for value in values:
        request = wire.produce_request(TOPIC, {0: wire.batch([value])}, timeout_ms=60_000)
        request.API_VERSION = wire.PRODUCE_VERSION
        request.with_header(correlation_id=1, client_id="tests")
        frames.append(request.encode(framed=True, header=True))
    with contextlib.ExitStack() as stack, watching(broker, limit_sec=60.0) as watcher:
        watcher.wait_for_rounds(1)
        connections = [stack.enter_context(wire.connect(broker, 120.0)) for _ in frames]
        for start in (0, 500_000):
            for connection, frame in zip(connections, frames, strict=True):
                connection.send_bytes(frame[start : start + 500_000])
        for connection in connections:
            _, reply = connection.receive(ProduceResponse, wire.PRODUCE_VERSION)
            assert reply.responses[0].partition_responses[0].error_code == 0
