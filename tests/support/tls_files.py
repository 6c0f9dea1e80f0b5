"""Certificates of a test's own CA as PEM files, and contexts of clients that trust it."""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding


@dataclass(slots=True)
class TlsFolder:
    """Files of a broker on `localhost`: `tls.crt`, `tls.key`, and `ca.crt` for clients' certificates."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.renew()
        self._write("ca.crt", self.authority.cert_pem.bytes())

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of `Settings`; as variables, too: `KAFSCALE_` and the name in upper case."""
        return {
            "ssl_certificate_file": self.folder / "tls.crt",
            "ssl_key_file": self.folder / "tls.key",
        }

    @property
    def mutual_settings(self) -> dict[str, Any]:
        """The same where clients must show a certificate."""
        return {**self.settings, "ssl_client_ca_file": self.folder / "ca.crt", "ssl_client_auth": "required"}

    def renew(self) -> None:
        """A new certificate of the same CA."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        self._write("tls.key", issued.private_key_pem.bytes())
        self._write("tls.crt", b"".join(part.bytes() for part in issued.cert_chain_pems))

    def spoil(self) -> None:
        """A certificate that is none."""
        self._write("tls.crt", b"-----BEGIN CERTIFICATE-----\nbroken\n")

    def claim_version(self, number: int) -> None:
        """The same certificate as one of another version of X.509; OpenSSL takes it."""
        shown = x509.load_pem_x509_certificates((self.folder / "tls.crt").read_bytes())[0]
        der, version = shown.public_bytes(Encoding.DER), b"\xa0\x03\x02\x01"
        before, _, after = der.partition(version)
        changed = before + version + bytes([number - 1]) + after[1:]
        self._write("tls.crt", ssl.DER_cert_to_PEM_cert(changed).encode())

    def client_context(self, name: str | None = None) -> ssl.SSLContext:
        """A client's context; with `name`, it shows a certificate with CN=name, O=Tests."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        if name is not None:
            shown = self.authority.issue_cert(common_name=name, organization_name="Tests")
            shown.configure_cert(context)
        return context

    def _write(self, name: str, data: bytes) -> None:
        """As a whole: a reader sees the file before or the one after."""
        part = self.folder / f".{name}.part"
        part.write_bytes(data)
        os.replace(part, self.folder / name)
