"""Connections of raw members: frames go out whole, replies are cut by their lengths."""

import resource
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from bench.wire import WireError

_RECEIVE_BYTES = 1024 * 1024
_TIMEOUT_SECONDS = 30.0
_SPARE_FILES = 100
_LENGTH = struct.Struct(">i")


class Framed:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send a whole frame."""
        self._socket.sendall(frame)

    def replies(self) -> list[bytes]:
        """The frames that are whole by what has come, their lengths included. Waits if nothing has come."""
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise WireError("the broker closed the connection")
        self._received += data
        whole: list[bytes] = []
        at = 0
        while len(self._received) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(self._received, at)[0]
            if len(self._received) < end:
                break
            whole.append(bytes(self._received[at:end]))
            at = end
        del self._received[:at]
        return whole

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Crowd:
    """Many connections, numbered from 0. Use it as a context manager."""

    def __init__(self, host: str, port: int, count: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count + _SPARE_FILES:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + _SPARE_FILES, hard), hard))
        self._stack = ExitStack()
        self._poller = select.epoll()
        self._stack.callback(self._poller.close)
        self._numbers: dict[int, int] = {}
        self.connections: Sequence[Framed] = [self._connected(host, port) for _ in range(count)]

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()

    def replies(self, wait_seconds: float) -> Iterator[tuple[int, bytes]]:
        """Replies that have come, or come first within this time: the connection's number, and the frame."""
        for descriptor, _events in self._poller.poll(max(0.0, wait_seconds)):
            number = self._numbers[descriptor]
            for frame in self.connections[number].replies():
                yield number, frame

    def _connected(self, host: str, port: int) -> Framed:
        connection = Framed(host, port)
        self._stack.callback(connection.close)
        self._numbers[connection.fileno()] = len(self._numbers)
        self._poller.register(connection.fileno(), select.EPOLLIN)
        return connection
