"""The raw driver: prebuilt Produce frames over one socket, many ahead of the replies, next to no CPU."""

import select
import socket
import time

from bench.meter import Meter
from bench.payloads import record_pool
from bench.replies import ProduceReplies
from bench.specs import FramesSpec, Window
from bench.wire import Client, WireError, produce_frame

_SEND_BYTES = 256 * 1024  # small frames are joined up to about this size
_RECEIVE_BYTES = 256 * 1024
_STALL_SECONDS = 30.0


def drive_frames(spec: FramesSpec) -> Window:
    """Keeps `in_flight_frames` in flight during warm-up and window, then waits for the last reply."""
    frames = _frames(spec)
    with Client(spec.host, spec.port) as client:
        replies = ProduceReplies(client.exchange(frames[0]))
    joined = max(1, min(_SEND_BYTES // len(frames[0]), spec.in_flight_frames // 2))
    block = b"".join(frames[at % len(frames)] for at in range(joined))
    meter = Meter(spec.broker_pids)
    with socket.create_connection((spec.host, spec.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        done = _pipeline(spec, connection, block, joined, replies, meter)
    return meter.window(spec.record_bytes, total_records=done * spec.records_per_frame)


def _pipeline(
    spec: FramesSpec,
    connection: socket.socket,
    block: bytes,
    joined: int,
    replies: ProduceReplies,
    meter: Meter,
) -> int:
    """Sends and receives until the window is over and all is answered; returns the frames answered."""
    view = memoryview(block)
    sent_of_block = 0  # bytes of the block in progress; 0: none is
    in_flight = done = 0
    poller = select.poll()
    poller.register(connection, select.POLLIN | select.POLLOUT)
    waits_for_room = True
    begin = last_moved = time.monotonic()
    opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
    while True:
        now = time.monotonic()
        if meter.never_opened and now >= opens:
            meter.open(done * spec.records_per_frame)
        ended = now >= closes
        if ended and meter.is_open:
            meter.close(done * spec.records_per_frame)
        if ended and not sent_of_block and not in_flight:
            return done
        may_send = bool(sent_of_block) or (not ended and in_flight + joined <= spec.in_flight_frames)
        if may_send != waits_for_room:
            poller.modify(connection, select.POLLIN | (select.POLLOUT if may_send else 0))
            waits_for_room = may_send
        for _fd, events in poller.poll(100):
            last_moved = now
            if events & select.POLLOUT:
                if not sent_of_block:
                    in_flight += joined
                sent_of_block = (sent_of_block + connection.send(view[sent_of_block:])) % len(block)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                received = connection.recv(_RECEIVE_BYTES)
                if not received:
                    raise WireError("the broker closed the connection")
                answered = replies.count(received)
                done += answered
                in_flight -= answered
        if now - last_moved > _STALL_SECONDS:
            raise WireError(f"no reply for {_STALL_SECONDS:.0f} s")


def _frames(spec: FramesSpec) -> list[bytes]:
    pool = record_pool(spec.payload, spec.record_bytes)
    frames = []
    for partition in range(spec.partitions):
        first = partition * spec.records_per_frame % max(1, len(pool) - spec.records_per_frame + 1)
        values = pool[first : first + spec.records_per_frame]
        frames.append(produce_frame(spec.topic, partition, values, correlation_id=partition))
    return frames
