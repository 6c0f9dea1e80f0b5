"""Identities at a Kubernetes API: certificates of its authority, tokens, kubeconfig files."""

import json
from dataclasses import dataclass
from pathlib import Path

import trustme

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One identity at one API server: a client certificate or a token."""

    server: str  # its URL
    ca: Path
    certificate: Path | None = None  # PEM: the private key, then the certificates
    token: str | None = None

    def write_kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """A file for every client of Kubernetes. JSON is YAML. Returns the path."""
        user: dict[str, str] = {}
        if self.certificate is not None:
            user = {"client-certificate": str(self.certificate), "client-key": str(self.certificate)}
        if self.token is not None:
            user = {"token": self.token}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "tests", "cluster": {"server": self.server, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "tests", "user": user}],
            "contexts": [
                {"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}
            ],
            "current-context": "tests",
        }
        path.write_text(json.dumps(config, indent=2))
        path.chmod(0o600)
        return path


class Authority:
    """A cluster's certificate authority and the key that signs its service accounts' tokens, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.certificate = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.certificate))
        self.server = folder / "server.pem"
        names = (HOST, "localhost", "kubernetes.default.svc")
        self._authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(self.server))
        self.token_key = folder / "token.key"
        self._authority.issue_cert(HOST).private_key_pem.write_to_path(str(self.token_key))

    def identify(self, user: str, group: str | None = None) -> Path:
        """A client certificate with its key: to Kubernetes the common name is the user, the organization a group."""
        path = self._folder / f"user-{user.replace('/', '-').replace(':', '-')}.pem"
        # With an address, which no client uses: Go refuses the extension for addresses if it is empty.
        issued = self._authority.issue_cert(HOST, common_name=user, organization_name=group or "tests")
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path
