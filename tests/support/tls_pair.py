"""A TLS transport without a socket: the test decides what arrives together and what leaves."""

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import cast

import pytest

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.ops.metrics import FrameRefusal
from kafscale.security.principal import ANONYMOUS, Principal
from kafscale.server.frames import FrameMemory
from kafscale.server.tls_session import TlsSession
from kafscale.server.tls_transport import TlsTransport
from tests.support.tls_files import TlsFolder

BUDGET_BYTES = 64 * 1024 * 1024


class Socket:
    """The socket's transport: takes `room_bytes` more, and keeps the rest."""

    def __init__(self) -> None:
        self.protocol: TlsTransport | None = None
        self.sent = bytearray()
        self.room_bytes: float = float("inf")
        self.reading = True
        self.is_closed = self.is_aborted = False
        self._unsent = bytearray()
        self._is_full = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 1234) if name == "peername" else default

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        assert not self.is_aborted
        self._unsent += data
        self._move()
        if self._unsent and not self._is_full:
            self._is_full = True
            self._of().pause_writing()

    def take(self, size_bytes: float) -> None:
        """Let the client read so many more bytes."""
        self.room_bytes += size_bytes
        self._move()
        if self._is_full and not self._unsent:
            self._is_full = False
            self._of().resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def _move(self) -> None:
        count = int(min(len(self._unsent), self.room_bytes))
        self.sent += self._unsent[:count]
        del self._unsent[:count]
        self.room_bytes -= count

    def _of(self) -> TlsTransport:
        assert self.protocol is not None
        return self.protocol


class Inner:
    """The connection: receives into memory of a size that changes, and pauses when it is told to."""

    def __init__(self, random_room: random.Random | None = None) -> None:
        self.transport: TlsTransport | None = None
        self.received = bytearray()
        self.principal: Principal | None = None
        self.refused: tuple[FrameRefusal, str] | None = None
        self.is_lost = self.is_paused = False
        self.pauses = 0
        self.pause_after: Callable[[], bool] = lambda: False
        self._random = random_room
        self._room = memoryview(bytearray(256 * 1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsTransport, transport)
        self.transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        size = self._random.choice([1, 100, 4096, 70_000, 256 * 1024]) if self._random else len(self._room)
        self._given = self._room[:size]
        return self._given

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self._given)
        self.received += self._given[:nbytes]
        if self.pause_after() and self.transport is not None:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def authenticated(self, principal: Principal) -> None:
        self.principal = principal

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        self.refused = (reason, problem)
        assert self.transport is not None
        self.transport.abort()


class Services:
    """The listener's, with one certificate."""

    def __init__(self, files: TlsFolder, timeout_sec: float = 60.0) -> None:
        self.files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client_context = files.client_context()
        self.context.load_cert_chain(files.folder / "tls.crt", files.folder / "tls.key")
        self.receive_buffer = memoryview(bytearray(288 * 1024))
        self.handshake_timeout_sec = timeout_sec
        self.budget = MemoryBudget(BUDGET_BYTES)
        self.frame_memory = FrameMemory(SlabPool(BUDGET_BYTES), self.budget)

    def new_session(self) -> TlsSession:
        return TlsSession(self.context)

    def principal(self, certificate: bytes | None) -> Principal:
        assert certificate is None
        return ANONYMOUS


class Pair:
    """A TLS transport and the client's end of it, in memory."""

    def __init__(self, services: Services, inner: Inner | None = None) -> None:
        self.inner = inner or Inner()
        self.services = services
        self.socket = Socket()
        self.tls = TlsTransport(self.inner, services)
        self.socket.protocol = self.tls
        self.tls.connection_made(cast(asyncio.BaseTransport, self.socket))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = services.client_context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )
        self._taken = 0
        self.read = bytearray()
        self.has_ended = False

    @property
    def refused(self) -> tuple[FrameRefusal, str] | None:
        return self.inner.refused

    def shake_hands(self) -> None:
        while True:
            try:
                self._ssl.do_handshake()
                is_over = True
            except ssl.SSLWantReadError:
                is_over = False
            self.feed(self._outgoing.read())
            self._take_sent()
            if is_over:
                return

    def ciphertext(self, data: bytes) -> bytes:
        self._ssl.write(data)
        return self._outgoing.read()

    def feed(self, data: bytes, cut: Callable[[], int] = lambda: 10**9) -> bytes:
        """Let bytes arrive, in parts of at most `cut()`; returns those that the transport does not read now."""
        while data and self.socket.reading and not self.socket.is_closed:
            room = self.tls.get_buffer(-1)
            count = min(len(room), len(data), cut())
            room[:count] = data[:count]
            data = data[count:]
            self.tls.buffer_updated(count)
            room[:count] = b"\xa5" * count
        return data

    def client_reads(self) -> bytes:
        """Everything that the client has read so far; `has_ended` after close_notify."""
        self._take_sent()
        try:
            while chunk := self._ssl.read(65536):
                self.read += chunk
            self.has_ended = True
        except ssl.SSLWantReadError:
            self.has_ended = False
        return bytes(self.read)

    def end(self) -> bytes:
        """The client's close_notify."""
        with pytest.raises(ssl.SSLWantReadError):
            self._ssl.unwrap()
        return self._outgoing.read()

    def _take_sent(self) -> None:
        self._incoming.write(self.socket.sent[self._taken :])
        self._taken = len(self.socket.sent)
