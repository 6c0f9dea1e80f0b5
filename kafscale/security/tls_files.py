"""TLS contexts made of PEM files, and made again when the files change."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from kafscale.errors import StartupError
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.settings.listener_kinds import ClientAuth, TlsVersion
from kafscale.settings.tls import TlsSettings

logger = logging.getLogger(__name__)

CHECK_SEC: Final = 5.0
"""How often the files are looked at."""

_VERSIONS: Final = {TlsVersion.V1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.V1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secret and authenticated, as all of TLS 1.3's are."""


class TlsFilesError(Exception):
    """The files are of no use; the message names the one, and never has its content."""


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """TLS contexts of the files. `expires_at_sec`: the end of the certificate's validity, seconds since 1970."""

    with_client_auth: ssl.SSLContext
    without: ssl.SSLContext
    expires_at_sec: float

    def of(self, protocol: SecurityProtocol) -> ssl.SSLContext:
        """The context for the listeners of that protocol: those of SASL_SSL ask for no client certificate."""
        return self.without if protocol.is_sasl else self.with_client_auth


def load_contexts(settings: TlsSettings) -> TlsContexts:
    """Read the files. Raises `TlsFilesError`."""
    assert settings.ssl_certificate_file is not None
    return TlsContexts(
        with_client_auth=_context(settings, settings.ssl_client_auth),
        without=_context(settings, ClientAuth.NONE),
        expires_at_sec=_expires_at_sec(settings.ssl_certificate_file),
    )


class TlsFiles:
    """The contexts of this moment. Files that are broken keep those before, with a log line and a count."""

    def __init__(self, settings: TlsSettings, on_failure: Callable[[], None] = lambda: None) -> None:
        """Reads the files. `on_failure` is called for each change that is of no use. Raises `StartupError`."""
        self._settings = settings
        self._on_failure = on_failure
        self._seen = self._state()
        try:
            self.contexts = load_contexts(settings)
        except TlsFilesError as problem:
            raise StartupError(str(problem)) from problem

    async def run(self, check_sec: float = CHECK_SEC) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(check_sec)
            await asyncio.to_thread(self.check)

    def check(self) -> None:
        """Read the files again if they have changed. It reads: not for the event loop."""
        state = self._state()
        if state == self._seen:
            return
        # Before they are read: what changes meanwhile is seen next time.
        self._seen = state
        try:
            self.contexts = load_contexts(self._settings)
        except TlsFilesError as problem:
            self._on_failure()
            logger.error(
                "kept the TLS certificate before, because the new files are of no use",
                extra={"problem": str(problem)},
            )
        else:
            logger.info(
                "read a new TLS certificate", extra={"file": str(self._settings.ssl_certificate_file)}
            )

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Inode, time and size of each file behind its symlinks."""
        settings = self._settings
        files = (settings.ssl_certificate_file, settings.ssl_key_file, settings.ssl_client_ca_file)
        return tuple(None if file is None else _stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context(settings: TlsSettings, client_auth: ClientAuth) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[version] for version in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_certificate(context, settings)
    context.verify_mode = _VERIFY[client_auth]
    if client_auth is not ClientAuth.NONE:
        # A resumed session would not show its certificate again. Those of TLS 1.2 can be resumed without a ticket:
        # `certificate_principal` checks the time.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        _load_authorities(context, settings)
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate, key, password = (
        settings.ssl_certificate_file,
        settings.ssl_key_file,
        settings.ssl_key_password,
    )
    assert certificate is not None and key is not None
    for file, variable in ((certificate, "KAFSCALE_SSL_CERTIFICATE_FILE"), (key, "KAFSCALE_SSL_KEY_FILE")):
        _check_readable(file, variable)
    try:
        # Always a password: OpenSSL would ask a terminal for one.
        context.load_cert_chain(certificate, key, password or (lambda: ""))
    except (ssl.SSLError, OSError, ValueError) as problem:
        reason = (
            getattr(problem, "reason", None) or "not PEM, or KAFSCALE_SSL_KEY_PASSWORD is wrong or missing"
        )
        raise TlsFilesError(
            f"KAFSCALE_SSL_CERTIFICATE_FILE={certificate} and KAFSCALE_SSL_KEY_FILE={key} are no certificate with "
            f"its key: {str(reason).lower().replace('_', ' ')}"
        ) from None


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    file = settings.ssl_client_ca_file
    assert file is not None
    _check_readable(file, "KAFSCALE_SSL_CLIENT_CA_FILE")
    try:
        context.load_verify_locations(file)
    except (ssl.SSLError, OSError):
        raise TlsFilesError(f"KAFSCALE_SSL_CLIENT_CA_FILE={file} has no certificates in PEM") from None


def _check_readable(file: Path, variable: str) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as problem:
        raise TlsFilesError(f"{variable}={file} cannot be read: {problem.strerror}") from None


def _expires_at_sec(file: Path) -> float:
    """Of the first certificate, which is the broker's own."""
    try:
        certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
    except (ValueError, OSError, x509.InvalidVersion) as problem:
        raise TlsFilesError(f"KAFSCALE_SSL_CERTIFICATE_FILE={file} cannot be read: {problem}") from None
    return certificate.not_valid_after_utc.timestamp()
