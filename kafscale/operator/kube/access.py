"""Where the Kubernetes API is, and as whom to come: a pod's service account, or a kubeconfig file."""

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kafscale.operator.errors import KubeAccessError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAccess:
    """One identity at one API server. `namespace`: where it lives. Of files the path is kept: tokens are renewed."""

    server: str
    namespace: str
    ca_data: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    certificate_data: str | None = None
    key_data: str | None = None
    token: str | None = None
    token_file: Path | None = None

    def bearer(self) -> str | None:
        """The token as it is now; reads a small file."""
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return self.token

    def tls(self, folder: Path) -> ssl.SSLContext:
        """For connections to the server. `folder`: a private one, for keys that are given as text."""
        context = ssl.create_default_context(cadata=self.ca_data)
        certificate, key = self.certificate, self.key
        if self.certificate_data is not None and self.key_data is not None:
            certificate, key = folder / "certificate.pem", folder / "key.pem"
            for path, text in ((certificate, self.certificate_data), (key, self.key_data)):
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8")
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def find_access(environment: Mapping[str, str]) -> KubeAccess:
    """KUBECONFIG where it is set, then a pod's own account, then ~/.kube/config. Raises `KubeAccessError`."""
    named = environment.get("KUBECONFIG")
    if named:
        return from_kubeconfig(Path(named))
    if "KUBERNETES_SERVICE_HOST" in environment:
        return from_service_account(environment, _ACCOUNT)
    usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
    if usual.exists():
        return from_kubeconfig(usual)
    raise KubeAccessError(
        f"no Kubernetes API is known: this is no pod, KUBECONFIG is not set and there is no {usual}"
    )


def from_service_account(environment: Mapping[str, str], folder: Path) -> KubeAccess:
    """As a pod does it. Raises `KubeAccessError`."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        return KubeAccess(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
            ca_data=(folder / "ca.crt").read_text(encoding="utf-8"),
            token_file=folder / "token",
        )
    except OSError as error:
        raise KubeAccessError(
            f"the service account's files cannot be read ({error}): is automountServiceAccountToken true?"
        ) from error


def from_kubeconfig(path: Path) -> KubeAccess:
    """The current context of the file. Raises `KubeAccessError`."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"]).get("user") or {}
        for name in ("exec", "auth-provider"):
            if name in user:
                raise ValueError(f"the user comes by {name}: a token or a certificate is needed")
        return KubeAccess(
            server=cluster["server"].rstrip("/"),
            namespace=context.get("namespace", "default"),
            ca_data=_text(cluster, "certificate-authority", path),
            certificate=_path(user, "client-certificate", path),
            key=_path(user, "client-key", path),
            certificate_data=_decoded(user, "client-certificate-data"),
            key_data=_decoded(user, "client-key-data"),
            token=user.get("token"),
            token_file=_path(user, "tokenFile", path),
        )
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise KubeAccessError(
            f"{path} is no kubeconfig that can be used: {type(error).__name__} {error}"
        ) from error


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise LookupError(f"nothing is named {name!r}")


def _path(entry: Mapping[str, Any], name: str, beside: Path) -> Path | None:
    return beside.parent / entry[name] if name in entry else None


def _decoded(entry: Mapping[str, Any], name: str) -> str | None:
    return base64.b64decode(entry[name]).decode() if name in entry else None


def _text(entry: Mapping[str, Any], name: str, beside: Path) -> str | None:
    path = _path(entry, name, beside)
    return _decoded(entry, f"{name}-data") if path is None else path.read_text(encoding="utf-8")
