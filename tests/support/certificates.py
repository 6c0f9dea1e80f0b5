"""Certificates of tests, in PEM files: a CA, a server's, clients' by name, and a CA that no broker trusts."""

import threading
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

ORGANIZATION = "kafscale tests"
UNIT = "clients"


class Identity:
    """A certificate with its key: apart (`cert`, `key`), and both in one file for Java (`both`)."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        self.both = folder / f"{name}.pem"

    def write(self, leaf: trustme.LeafCert) -> None:
        """Replace the files, each of them at once."""
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        # Java reads PKCS #8 only.
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        for path, content in ((self.key, key), (self.cert, chain), (self.both, key + chain)):
            staging = path.with_suffix(".new")
            staging.write_bytes(content)
            staging.chmod(0o600)
            staging.rename(path)


class Certificates:
    """A folder of certificates. A client's distinguished name is CN=<name>, OU=clients, O=kafscale tests."""

    def __init__(self, folder: Path, broker: str = "broker") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self._clients: dict[str, Identity] = {}
        self._lock = threading.Lock()
        self._broker = broker
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(self._ca.cert_pem.bytes())
        self.stranger_ca = folder / "stranger-ca.crt"
        self._stranger = trustme.CA()
        self.stranger_ca.write_bytes(self._stranger.cert_pem.bytes())
        self.server = Identity(folder, "server")
        self.rotate_server()

    def rotate_server(self) -> None:
        """Write another certificate of the server, from the same CA, into the same files."""
        self.server.write(_issue(self._ca, self._broker, "127.0.0.1", "localhost"))

    def client(self, name: str) -> Identity:
        """A client's certificate, from the CA that brokers trust."""
        with self._lock:
            if name not in self._clients:
                self._clients[name] = identity = Identity(self._folder, f"client-{name}")
                identity.write(_issue(self._ca, name, f"{name}.client.test"))
            return self._clients[name]

    def stranger(self, name: str) -> Identity:
        """A client's certificate of the same name, from a CA that no broker trusts."""
        identity = Identity(self._folder, f"stranger-{name}")
        identity.write(_issue(self._stranger, name, f"{name}.client.test"))
        return identity


def distinguished_name(name: str) -> str:
    """The name of a client's certificate as Java prints it (RFC 2253)."""
    return f"CN={name},OU={UNIT},O={ORGANIZATION}"


def _issue(ca: trustme.CA, name: str, *identities: str) -> trustme.LeafCert:
    return ca.issue_cert(
        *identities, common_name=name, organization_name=ORGANIZATION, organization_unit_name=UNIT
    )
