"""TLS between a connection and its socket: a protocol to the one, a transport to the other.

Not asyncio's own: that one keeps 256 KiB of receive buffer for each connection, encrypts a whole reply before the
socket has taken any of it, and cannot change its certificate. See docs/security.md for what TLS costs here.

The connection is made known to the listener before the handshake, so that it counts in the limits from its first
byte. It receives nothing before the handshake is over, which has a time limit.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.types import Buffer
from kafscale.security.principal import Principal
from kafscale.server.frame_lanes import share_key
from kafscale.server.frames import FrameMemory
from kafscale.server.tls_session import RECORD_BYTES, TlsError, TlsSession

ENCRYPTED_AT_ONCE_BYTES: Final = 64 * 1024
"""Plaintext that is encrypted and sent in one piece: OpenSSL keeps a buffer of this size for each connection."""

_DECRYPTED_AT_ONCE_BYTES: Final = 64 * 1024
"""The same for ciphertext."""

_READ_AHEAD_BYTES: Final = RECORD_BYTES + 1024
"""Ciphertext that is received beyond the memory that the connection has for plaintext: one record."""

_UNCOUNTED_BYTES: Final = _READ_AHEAD_BYTES
_MOST_UNSENT_CONTROL_BYTES: Final = 64 * 1024


class SecuredConnection(Protocol):
    """The connection above TLS: a `BufferedProtocol` whose client is known from the handshake on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; nothing comes before the handshake is over."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""

    def pause_writing(self) -> None:
        """Not everything that was written has left."""

    def resume_writing(self) -> None:
        """Everything that was written has left."""

    def authenticated(self, principal: Principal) -> None:
        """The client is known."""

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """Close the connection because of bytes that its client sent."""


class TlsServices(Protocol):
    """The things that all TLS connections of a listener share.

    `receive_buffer`: for ciphertext, consumed before the loop does anything else.
    """

    receive_buffer: memoryview
    handshake_timeout_sec: float
    frame_memory: FrameMemory

    def new_session(self) -> TlsSession:
        """A session with the certificate of this moment."""

    def principal(self, certificate: bytes | None) -> Principal:
        """The client with this certificate, as DER. Raises `TlsError` if no rule gives it a name."""


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection's TLS. Created by the listener for each client; `inner` is the connection above it."""

    def __init__(self, inner: SecuredConnection, services: TlsServices) -> None:
        super().__init__()
        self._inner = inner
        self._services = services
        self._session = services.new_session()
        self._loop = asyncio.get_running_loop()
        self._raw: asyncio.Transport | None = None
        self._share_key = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._backlog: deque[memoryview] = deque()
        self._raw_is_full = False
        self._inner_is_paused = False
        self._reading_paused = False
        self._delivering = False
        self._deliver_soon: asyncio.Handle | None = None
        self._closing = False
        self._counted_bytes = 0
        self._unsent_control_bytes = 0

    # --- the socket's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._raw = cast(asyncio.Transport, transport)
        # As the connection has it: `pause_writing` says that not everything has left.
        self._raw.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self._share_key = share_key(str(peer[0])) if peer else ""
        self._deadline = self._loop.call_later(self._services.handshake_timeout_sec, self._overdue)
        self._inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._raw = None
        self._closing = True
        self._stop_deadline()
        self._backlog.clear()
        if self._deliver_soon is not None:
            self._deliver_soon.cancel()
        self._count(0)
        self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes of ciphertext."""
        room = self._services.receive_buffer
        if not self._session.is_established:
            return room[:_READ_AHEAD_BYTES]
        return room[: len(self._inner.get_buffer(sizehint)) + _READ_AHEAD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Ciphertext has arrived."""
        data = self._services.receive_buffer
        for start in range(0, nbytes, _DECRYPTED_AT_ONCE_BYTES):
            self._session.receive(data[start : min(start + _DECRYPTED_AT_ONCE_BYTES, nbytes)])
            if self._session.is_established or self._is_handshake_over():
                self._deliver()

    def eof_received(self) -> bool:
        """The client will send nothing more."""
        self.close()
        return True

    def pause_writing(self) -> None:
        """The client takes its replies more slowly than they are made."""
        self._raw_is_full = True

    def resume_writing(self) -> None:
        """Everything that was given to the socket has left."""
        self._raw_is_full = False
        self._unsent_control_bytes = 0
        self._push()

    # --- the handshake

    def _is_handshake_over(self) -> bool:
        """Goes on with it; a client that fails it is refused."""
        if self._closing:
            return False
        try:
            is_over = self._session.shake_hands()
            if is_over:
                self._stop_deadline()
                self._inner.authenticated(self._services.principal(self._session.peer_certificate()))
        except TlsError as problem:
            self._send_control()
            self._refuse(str(problem))
            return False
        self._send_control()
        return is_over

    def _overdue(self) -> None:
        self._refuse(f"no TLS handshake within {self._services.handshake_timeout_sec:g} s")

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, problem: str) -> None:
        if not self._closing:
            self._inner.refuse(FrameRefusal.TLS, problem)

    # --- received bytes

    def _deliver(self) -> None:
        """Decrypt what has arrived into the connection's memory, until the connection stops that."""
        self._deliver_soon = None
        if self._delivering:
            return
        self._delivering = True
        try:
            while not (self._reading_paused or self._closing):
                size_bytes = self._session.read_into(self._inner.get_buffer(-1))
                if not size_bytes:
                    break
                self._inner.buffer_updated(size_bytes)
        except TlsError as problem:
            self._refuse(str(problem))
        finally:
            self._delivering = False
        self._after_delivery()

    def _after_delivery(self) -> None:
        if self._closing:
            return
        self._send_control()
        waiting_bytes = self._session.waiting_bytes
        if waiting_bytes != self._counted_bytes:
            self._count(waiting_bytes if waiting_bytes > _UNCOUNTED_BYTES else 0)
        if self._session.is_ended and not self._reading_paused:
            self.eof_received()

    def _count(self, waiting_bytes: int) -> None:
        """Bytes that wait here count in the address's share, as those that the connection keeps."""
        more_bytes, self._counted_bytes = waiting_bytes - self._counted_bytes, waiting_bytes
        if more_bytes:
            self._services.frame_memory.keep(self._share_key, more_bytes)

    # --- a transport's methods

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the socket's transport."""
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """True if the connection receives."""
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        """Receive nothing more."""
        self._reading_paused = True
        if self._raw is not None and not self._closing:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Receive again, first what is here already."""
        self._reading_paused = False
        if self._raw is None or self._closing:
            return
        self._raw.resume_reading()
        if not self._delivering and self._deliver_soon is None and self._session.is_established:
            self._deliver_soon = self._loop.call_soon(self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Only 0 is possible: `pause_writing` says that not everything has left."""
        assert high == 0

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left, as ciphertext or plaintext."""
        raw_bytes = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return raw_bytes + sum(map(len, self._backlog))

    def write(self, data: Buffer) -> None:
        """Send, as far as the socket takes it now; the rest is not encrypted before it does."""
        if self._closing:
            return
        if not self._backlog and not self._raw_is_full and len(data) <= ENCRYPTED_AT_ONCE_BYTES:
            self._send(data)
            self._notify_fullness()
        else:
            self._backlog.append(memoryview(data))
            self._push()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send all of these."""
        if not self._closing:
            self._backlog.extend(memoryview(data) for data in list_of_data if len(data))
            self._push()

    def is_closing(self) -> bool:
        """True if no more is sent but what was written before."""
        return self._closing

    def close(self) -> None:
        """Close when everything that was written has left."""
        if self._closing:
            return
        self._closing = True
        self._stop_deadline()
        if self._raw is not None:
            self._raw.pause_reading()
            if not self._backlog:
                self._close_raw()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._stop_deadline()
        self._backlog.clear()
        if self._raw is not None:
            self._raw.abort()

    # --- sent bytes

    def _push(self) -> None:
        """Encrypt and send while the socket takes it."""
        while self._backlog and not self._raw_is_full:
            self._send(self._next_piece())
        if self._closing and not self._backlog:
            self._close_raw()
        else:
            self._notify_fullness()

    def _next_piece(self) -> Buffer:
        """The next bytes to encrypt: a part of a large buffer, or small ones joined to one record."""
        backlog = self._backlog
        first = backlog[0]
        if len(first) > ENCRYPTED_AT_ONCE_BYTES:
            backlog[0] = first[ENCRYPTED_AT_ONCE_BYTES:]
            return first[:ENCRYPTED_AT_ONCE_BYTES]
        backlog.popleft()
        if len(first) >= RECORD_BYTES:
            return first
        joined, size_bytes = [first], len(first)
        while backlog and size_bytes + len(backlog[0]) <= RECORD_BYTES:
            size_bytes += len(backlog[0])
            joined.append(backlog.popleft())
        return first if len(joined) == 1 else b"".join(joined)

    def _send(self, data: Buffer) -> None:
        if self._raw is None:
            return
        try:
            self._raw.write(self._session.encrypt(data))
        except TlsError as problem:
            self._backlog.clear()
            self._refuse(str(problem))

    def _send_control(self) -> None:
        """Send what TLS itself has to say. A client that asks for more and reads none of it is closed."""
        data = self._session.output()
        if not data or self._raw is None:
            return
        self._raw.write(data)
        if self._raw_is_full:
            self._unsent_control_bytes += len(data)
            if self._unsent_control_bytes > _MOST_UNSENT_CONTROL_BYTES:
                self._refuse("it asks for TLS messages and reads none")

    def _notify_fullness(self) -> None:
        is_full = self._raw_is_full or bool(self._backlog)
        if is_full and not self._inner_is_paused:
            self._inner_is_paused = True
            self._inner.pause_writing()
        elif not is_full and self._inner_is_paused:
            self._inner_is_paused = False
            self._inner.resume_writing()

    def _close_raw(self) -> None:
        if self._raw is not None:
            self._raw.write(self._session.end())
            self._raw.close()
