"""The things that all TLS connections of one protocol share."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from kafscale.protocol.listeners import SecurityProtocol
from kafscale.security.certificate_principal import UnnamedCertificateError, certificate_principal
from kafscale.security.principal import Principal
from kafscale.security.tls_files import TlsFiles
from kafscale.server.frames import FrameMemory
from kafscale.server.tls_session import TlsError, TlsSession
from kafscale.settings.tls import TlsSettings

RECEIVE_BUFFER_BYTES: Final = 256 * 1024 + 32 * 1024
"""As much ciphertext as the plaintext that a connection can receive at once."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ProtocolTls:
    """See `tls_transport.TlsServices`; new sessions take the files of this moment."""

    def __init__(
        self,
        files: TlsFiles,
        settings: TlsSettings,
        protocol: SecurityProtocol,
        frame_memory: FrameMemory,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`now`: the time by which a client's certificate is valid."""
        self._files = files
        self._protocol = protocol
        self._now = now
        self._rules = settings.ssl_principal_mapping_rules
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.handshake_timeout_sec = settings.ssl_handshake_timeout_ms / 1000
        self.frame_memory = frame_memory

    def new_session(self) -> TlsSession:
        """A session with the certificate of this moment."""
        return TlsSession(self._files.contexts.of(self._protocol))

    def principal(self, certificate: bytes | None) -> Principal:
        """The client with this certificate. Raises `TlsError` if it has expired, or no rule gives it a name."""
        try:
            return certificate_principal(certificate, self._rules, self._now())
        except UnnamedCertificateError as problem:
            raise TlsError(str(problem)) from problem
