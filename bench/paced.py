"""The raw driver at a fixed rate: each record is sent when it is due, and timed from then to its reply."""

import select
import socket
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.librdkafka import Consumer
from bench.payloads import record_pool
from bench.replies import ProduceReplies
from bench.specs import Latencies, PacedSpec
from bench.wire import Client, WireError, produce_frame

_RECEIVE_BYTES = 64 * 1024
_LAST_REPLIES_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class _Connection:
    """One connection; `due` has the due times of the records without a reply yet."""

    socket: socket.socket
    replies: ProduceReplies
    due: deque[float] = field(default_factory=deque)


def drive_paced(spec: PacedSpec) -> Latencies:
    """Sends independently of replies; the records go round the partitions and the connections."""
    values = record_pool(spec.payload, spec.record_bytes)
    frames = [
        produce_frame(spec.topic, partition, [values[partition % len(values)]], correlation_id=partition)
        for partition in range(spec.partitions)
    ]
    with Client(spec.host, spec.port) as client:
        first = client.exchange(frames[0])
        ends = {at: client.log_end_offset(spec.topic, at) for at in range(spec.partitions)}
    with ExitStack() as stack:
        connections = [
            _Connection(
                socket=stack.enter_context(socket.create_connection((spec.host, spec.port))),
                replies=ProduceReplies(first),
            )
            for _ in range(spec.connections)
        ]
        for connection in connections:
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        consumer = Consumer(spec.topic, {"bootstrap.servers": f"{spec.host}:{spec.port}"})
        stack.callback(consumer.close)
        consumer.start(ends)
        return _run(spec, frames, connections, consumer)


def _run(
    spec: PacedSpec, frames: list[bytes], connections: list[_Connection], consumer: Consumer
) -> Latencies:
    measured: list[float] = []
    consumed = 0
    poller = _poller(connections)
    by_descriptor = {connection.socket.fileno(): connection for connection in connections}
    ticks = int((spec.warmup_seconds + spec.seconds) * spec.per_second)
    begin = time.monotonic()
    opens = begin + spec.warmup_seconds
    tick = 0
    with poller:
        while tick < ticks or consumed < ticks or any(connection.due for connection in connections):
            consumed += consumer.poll(0)
            now = time.monotonic()
            while tick < ticks and (due := begin + tick / spec.per_second) <= now:
                connection = connections[tick % len(connections)]
                connection.socket.sendall(frames[tick % len(frames)])
                connection.due.append(due)
                tick += 1
            wait = begin + tick / spec.per_second - time.monotonic() if tick < ticks else 0.1
            for descriptor, _events in poller.poll(max(0.0, wait)):
                measured += _answered(by_descriptor[descriptor], opens)
            if tick == ticks and now > begin + ticks / spec.per_second + _LAST_REPLIES_SECONDS:
                raise WireError(f"a reply or a record did not come within {_LAST_REPLIES_SECONDS:.0f} s")
    return Latencies(milliseconds=sorted(measured), total_records=ticks)


def _poller(connections: list[_Connection]) -> select.epoll:
    """A poller for replies on all connections."""
    poller = select.epoll()
    for connection in connections:
        poller.register(connection.socket.fileno(), select.EPOLLIN)
    return poller


def _answered(connection: _Connection, opens: float) -> list[float]:
    """Milliseconds of the records that have been answered now and were due in the window."""
    received = connection.socket.recv(_RECEIVE_BYTES)
    if not received:
        raise WireError("the broker closed the connection")
    now = time.monotonic()
    due = [connection.due.popleft() for _ in range(connection.replies.count(received))]
    return [(now - since) * 1000 for since in due if since >= opens]
