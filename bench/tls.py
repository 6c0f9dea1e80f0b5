"""TLS of a broker under test: a second listener beside the plaintext one, with a certificate of its own CA."""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from tests.support.ports import free_port
from tests.support.tls_files import TlsFolder


@dataclass(slots=True)
class TlsListener:
    """The files in `folder`, and the port. Drivers come by TLS; what is prebuilt stays on the plaintext listener."""

    folder: Path
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        files = TlsFolder(self.folder)
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # Kafka takes the key and its certificates from one file.
        self.key_and_certificate.write_bytes(pkcs8 + self.certificate.read_bytes())
        files.authority.cert_pem.write_to_path(str(self.authority))

    @property
    def certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def key_and_certificate(self) -> Path:
        return self.folder / "both.pem"

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def driver_properties(self) -> dict[str, str]:
        """librdkafka's."""
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.authority)}
