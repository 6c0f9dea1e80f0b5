"""One connection's TLS without its socket: ciphertext to plaintext and back, in memory.

Every copy counts here. Received bytes go from the shared buffer through OpenSSL straight into the memory that the
connection gives for them, and replies are encrypted piece by piece as the socket takes them: a reply that waits is
not in memory twice.
"""

import ssl
from typing import Final, cast

from kafscale.errors import KafscaleError
from kafscale.protocol.types import Buffer

RECORD_BYTES: Final = 16 * 1024
"""The most plaintext that one TLS record carries."""

_SHOWN_PROBLEM: Final = 200
_NOT_TLS: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE"}
)


class TlsError(KafscaleError):
    """The peer does not speak TLS as configured here; the connection is of no use any more."""


class TlsSession:
    """The server's side. `is_established`: the handshake is over. `is_ended`: the peer has ended TLS."""

    __slots__ = ("_incoming", "_outgoing", "_ssl", "is_ended", "is_established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established = False
        self.is_ended = False

    def receive(self, data: Buffer) -> None:
        """Take ciphertext; the bytes are copied."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """True if the handshake is over; `output` has what must be sent in any case. Raises `TlsError`."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as problem:
            raise TlsError(_handshake_text(problem)) from problem
        self.is_established = True
        return True

    def read_into(self, room: memoryview) -> int:
        """Decrypt into `room`, until it is full or more must be received; the bytes written. Raises `TlsError`."""
        filled, size, read = 0, len(room), self._ssl.read
        while filled < size and (self._incoming.pending or self._ssl.pending()):
            try:
                count = cast(int, read(size - filled, room[filled:]))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.is_ended = True
                break
            except ssl.SSLError as problem:
                raise TlsError(_text(problem)) from problem
            if not count:
                self.is_ended = True
                break
            filled += count
        return filled

    @property
    def waiting_bytes(self) -> int:
        """About how much was received and not read."""
        return self._incoming.pending + self._ssl.pending()

    def encrypt(self, data: Buffer) -> bytes:
        """The ciphertext of all of `data`. Raises `TlsError`."""
        try:
            self._ssl.write(data)
        except ssl.SSLError as problem:
            raise TlsError(_text(problem)) from problem
        return self._outgoing.read()

    def output(self) -> bytes:
        """Bytes of TLS itself to send: handshake, alerts, answers to key updates."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """The message that ends this side (close_notify), if there is one to send."""
        if self.is_established:
            try:
                self._ssl.unwrap()
            except (ssl.SSLError, OSError):
                # It wants the peer's answer, which is not waited for; or the session has failed already.
                return self.output()
        return self.output()

    def peer_certificate(self) -> bytes | None:
        """The client's certificate as DER, which has been verified; None if it has shown none."""
        return self._ssl.getpeercert(binary_form=True)

    def version(self) -> str:
        """The protocol's version, such as TLSv1.3; empty before the handshake's end."""
        return self._ssl.version() or ""


def _handshake_text(problem: ssl.SSLError) -> str:
    reason = _text(problem)
    if problem.reason in _NOT_TLS:
        return f"the client does not speak TLS: {reason}"
    return f"the TLS handshake failed: {reason}"


def _text(problem: ssl.SSLError) -> str:
    """The reason in words, without OpenSSL's source line."""
    reason = (problem.reason or str(problem)).lower().replace("_", " ")
    return reason[:_SHOWN_PROBLEM]
