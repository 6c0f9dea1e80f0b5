"""The raw driver for any API: one prebuilt request sent again and again, each reply timed and counted."""

import socket
import time
from collections import deque

from bench.meter import Meter
from bench.replies import FrameCounter
from bench.specs import Repeated, RepeatSpec
from bench.wire import WireError

_RECEIVE_BYTES = 1024 * 1024
_STALL_SECONDS = 30.0


def drive_repeat(spec: RepeatSpec) -> Repeated:
    """Keeps `in_flight` requests unanswered during warm-up and window."""
    frame = bytes.fromhex(spec.frame)
    meter = Meter(spec.broker_pids)
    room = bytearray(_RECEIVE_BYTES)
    view = memoryview(room)
    counter = FrameCounter()
    sent_at: deque[float] = deque()
    measured: list[float] = []
    done = 0
    with socket.create_connection((spec.host, spec.port), timeout=_STALL_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.monotonic()
        opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
        while (now := time.monotonic()) < closes or sent_at:
            if meter.never_opened and now >= opens:
                meter.open(done)
            if now >= closes and meter.is_open:
                meter.close(done)
            free = spec.in_flight - len(sent_at) if now < closes else 0
            if free:
                connection.sendall(frame * free)
                sent_at.extend([now] * free)
            taken = connection.recv_into(room)
            if not taken:
                raise WireError("the broker closed the connection")
            answered = counter.count(view[:taken])
            now = time.monotonic()
            for _ in range(answered):
                since = sent_at.popleft()
                if since >= opens:
                    measured.append((now - since) * 1000)
            done += answered
    if meter.is_open:
        meter.close(done)
    window = meter.window(1, total_records=done)
    return Repeated(window=window, milliseconds=sorted(measured), reply_bytes=counter.last_bytes)
