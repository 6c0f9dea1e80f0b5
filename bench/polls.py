"""Many open connections: idle, or each with a Fetch that waits for records that do not come."""

import resource
import select
import socket
import time
from contextlib import ExitStack

from bench.meter import Meter
from bench.process import memory
from bench.replies import FrameCounter
from bench.specs import Polled, PollsSpec
from bench.wire import Client, FetchPlace, WireError, api_versions_frame, check_fetch_reply, fetch_frame

_RECEIVE_BYTES = 64 * 1024
_POLL_BYTES = 1024 * 1024
_LONGEST_SETTLE_SECONDS = 2.0
_SPARE_FILES = 100
_SERVED_SECONDS = 60.0
_ASK_AGAIN_SECONDS = 0.1


def drive_polls(spec: PollsSpec) -> Polled:
    """Opens all connections, lets them settle, then measures; an answered Fetch is sent again at once."""
    _allow_files(spec.connections + _SPARE_FILES)
    frames = _frames(spec) if spec.max_wait_ms else []
    before = memory(spec.broker_pids[0]).resident_bytes
    meter = Meter(spec.broker_pids)
    with ExitStack() as stack:
        connections = [_connect(spec, stack) for _ in range(spec.connections)]
        replies = _run(connections, frames, spec, meter)
        after = memory(spec.broker_pids[0]).resident_bytes
    window = meter.window(1, total_records=replies)
    return Polled(window=window, resident_bytes_before=before, resident_bytes_after=after)


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def _connect(spec: PollsSpec, stack: ExitStack) -> socket.socket:
    """A connection that has sent every client's first requests."""
    connection = stack.enter_context(socket.create_connection((spec.host, spec.port), timeout=30.0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(api_versions_frame())
    counter = FrameCounter()
    while received := connection.recv(_RECEIVE_BYTES):
        if counter.count(memoryview(received)):
            return connection
    raise WireError("the broker closed a connection instead of answering ApiVersions")


def _frames(spec: PollsSpec) -> list[bytes]:
    """A Fetch for each connection, of partitions that have no records yet."""
    total = len(spec.topics) * spec.topic_partitions
    lots = []
    for number in range(spec.connections):
        lot = sorted((number * spec.partitions_each + step) % total for step in range(spec.partitions_each))
        lots.append([_place(spec, at) for at in lot])
    with Client(spec.host, spec.port) as client:
        for places in lots:
            _until_served(client, places)
    return [fetch_frame(lot, max_bytes=_POLL_BYTES, max_wait_ms=spec.max_wait_ms) for lot in lots]


def _until_served(client: Client, places: list[FetchPlace]) -> None:
    """Wait for all leaders: Kafka names a leader some time before it leads. Raises WireError."""
    frame = fetch_frame(places, max_bytes=_POLL_BYTES, max_wait_ms=1)
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            check_fetch_reply(client.exchange(frame))
        except WireError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)
        else:
            return


def _place(spec: PollsSpec, at: int) -> FetchPlace:
    topic = spec.topics[at // spec.topic_partitions]
    return FetchPlace(topic=topic, partition=at % spec.topic_partitions, offset=0)


def _run(connections: list[socket.socket], frames: list[bytes], spec: PollsSpec, meter: Meter) -> int:
    """Counts replies from the first Fetch to the end of the window."""
    settle_seconds = min(_LONGEST_SETTLE_SECONDS, 2 * spec.max_wait_ms / 1000) or 1.0
    apart = settle_seconds / 2 / len(connections)
    begin = time.monotonic()
    opens, closes = begin + settle_seconds, begin + settle_seconds + spec.seconds
    counters = {
        connection.fileno(): (connection, at, FrameCounter()) for at, connection in enumerate(connections)
    }
    replies = started = 0
    with select.epoll() as poller:
        for descriptor in counters:
            poller.register(descriptor, select.EPOLLIN)
        while (now := time.monotonic()) < closes:
            if meter.never_opened and now >= opens:
                meter.open(replies)
            while started < len(frames) and begin + started * apart <= now:
                connections[started].sendall(frames[started])
                started += 1
            wait = apart if started < len(frames) else closes - now
            for descriptor, _events in poller.poll(min(wait, opens - now) if now < opens else wait):
                connection, at, counter = counters[descriptor]
                received = connection.recv(_RECEIVE_BYTES)
                if not received:
                    raise WireError("the broker closed a connection")
                for _ in range(counter.count(memoryview(received))):
                    replies += 1
                    connection.sendall(frames[at])
        meter.close(replies)
    return replies
