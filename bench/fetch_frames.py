"""The raw consume driver: prebuilt Fetch frames over raw connections, the replies copied once and dropped."""

import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle

from bench.meter import Meter
from bench.specs import FetchFramesSpec, Window
from bench.wire import Client, FetchPlace, WireError, fetch_frame, fetched_records, introduce

_RECEIVE_BYTES = 1024 * 1024
_STALL_SECONDS = 30.0
_MAX_WAIT_MS = 500
_BASE_OFFSET_BYTES, _LENGTH_BYTES = 8, 4
_LAST_OFFSET_DELTA_AT = 23  # in a batch: see "Record Batch" in Kafka's protocol guide
_COUNTED_BYTES = 1  # so that the window's records are bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """One request, and what is known of its reply: where the records start, and the size of the whole batches."""

    frame: bytes
    records_at: int
    whole_bytes: int


def drive_fetch_frames(spec: FetchFramesSpec) -> Window:
    """Keeps requests in flight on every connection in warm-up and window. Its records are bytes of whole batches."""
    fetches = _plan(spec)
    meter = Meter(spec.broker_pids)
    with ExitStack() as stack:
        connections = [
            _Connection(stack.enter_context(socket.create_connection((spec.host, spec.port))))
            for _ in range(spec.connections)
        ]
        for connection in connections:
            introduce(connection.socket)
        total = _run(spec, connections, cycle(fetches), meter)
    return meter.window(_COUNTED_BYTES, total_records=total)


def _plan(spec: FetchFramesSpec) -> list[_Fetch]:
    """One pass over the partitions in turns, each from the end of its last reply."""
    share = spec.volume_bytes // len(spec.start_offsets)
    by_partition = []
    with Client(spec.host, spec.port) as client:
        for partition, offset in enumerate(spec.start_offsets):
            by_partition.append(list(_plan_partition(client, spec, partition, offset, share)))
    longest = max(len(fetches) for fetches in by_partition)
    fetches = [one[at] for at in range(longest) for one in by_partition if at < len(one)]
    if not fetches:
        raise WireError(f"topic {spec.topic} has nothing to fetch from offsets {spec.start_offsets} on")
    return fetches


def _plan_partition(
    client: Client, spec: FetchFramesSpec, partition: int, offset: int, share: int
) -> Iterator[_Fetch]:
    planned = 0
    while planned < share:
        place = FetchPlace(topic=spec.topic, partition=partition, offset=offset)
        frame = fetch_frame([place], max_bytes=spec.fetch_bytes, max_wait_ms=_MAX_WAIT_MS)
        records, records_at = fetched_records(client.exchange(frame))
        whole_bytes, next_offset = whole_batches(records)
        if not whole_bytes:
            return
        yield _Fetch(frame=frame, records_at=records_at, whole_bytes=whole_bytes)
        planned += whole_bytes
        offset = next_offset


def whole_batches(records: bytes) -> tuple[int, int]:
    """The size of the whole batches, and the offset after the last of them. Brokers may truncate the last one."""
    at = next_offset = 0
    while at + _BASE_OFFSET_BYTES + _LENGTH_BYTES <= len(records):
        base = int.from_bytes(records[at : at + _BASE_OFFSET_BYTES], "big")
        length_at = at + _BASE_OFFSET_BYTES
        length = int.from_bytes(records[length_at : length_at + _LENGTH_BYTES], "big")
        end = length_at + _LENGTH_BYTES + length
        if end > len(records):
            break
        delta_at = at + _LAST_OFFSET_DELTA_AT
        next_offset = base + int.from_bytes(records[delta_at : delta_at + 4], "big") + 1
        at = end
    return at, next_offset


@dataclass(slots=True)
class _Connection:
    """One connection with its unanswered fetches, oldest first."""

    socket: socket.socket
    waiting: deque[_Fetch] = field(default_factory=deque)
    _head: bytes = b""
    _left: int = 0  # of the reply in progress, after its head

    def ask(self, fetch: _Fetch) -> None:
        self.socket.sendall(fetch.frame)
        self.waiting.append(fetch)

    def receive(self, room: memoryview) -> int:
        """Receive, up to the end of a reply; returns the whole batches' bytes of a completed reply."""
        fetch = self.waiting[0]
        if len(self._head) < fetch.records_at:
            self._receive_head(fetch)
            return 0
        taken = self.socket.recv_into(room, min(self._left, len(room)))
        if not taken:
            raise WireError("the broker closed the connection")
        self._left -= taken
        if self._left:
            return 0
        self._head = b""
        return self.waiting.popleft().whole_bytes

    def _receive_head(self, fetch: _Fetch) -> None:
        """The bytes before the records. Raises WireError if there are none."""
        piece = self.socket.recv(fetch.records_at - len(self._head))
        if not piece:
            raise WireError("the broker closed the connection")
        self._head += piece
        if len(self._head) == fetch.records_at:
            length = int.from_bytes(self._head[:_LENGTH_BYTES], "big")
            self._left = _LENGTH_BYTES + length - fetch.records_at
            if self._left <= 0:
                raise WireError("a Fetch reply has no records any more: an error, or they have gone")


def _run(
    spec: FetchFramesSpec, connections: Sequence[_Connection], fetches: Iterator[_Fetch], meter: Meter
) -> int:
    room = memoryview(bytearray(_RECEIVE_BYTES))
    poller = select.epoll()
    by_descriptor = {connection.socket.fileno(): connection for connection in connections}
    for descriptor, connection in by_descriptor.items():
        poller.register(descriptor, select.EPOLLIN)
        for _ in range(spec.requests_ahead):
            connection.ask(next(fetches))
    done = 0
    begin = last_moved = time.monotonic()
    opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
    with poller:
        while (now := time.monotonic()) < closes:
            if meter.never_opened and now >= opens:
                meter.open(done)
            for descriptor, _events in poller.poll(0.1):
                last_moved = now
                connection = by_descriptor[descriptor]
                ended = connection.receive(room)
                if ended:
                    done += ended
                    connection.ask(next(fetches))
            if now - last_moved > _STALL_SECONDS:
                raise WireError(f"no reply for {_STALL_SECONDS:.0f} s")
        meter.close(done)
    return done
