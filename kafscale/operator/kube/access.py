"""Address and identity at the Kubernetes API: a pod's service account, or a kubeconfig file."""

import dataclasses
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf
import yaml

from kafscale.operator.errors import KubeAccessError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """One identity at one API server. Kubernetes rotates the token in `token_file`, so read it for each request."""

    connection: kopf.ConnectionInfo
    token_file: Path | None = None

    @property
    def server(self) -> str:
        """Base URL without a slash at its end."""
        return self.connection.server

    @property
    def namespace(self) -> str:
        """Namespace of the pod, or of the kubeconfig's context."""
        return self.connection.default_namespace or "default"

    def bearer(self) -> str | None:
        """Returns the current token; reads a small file."""
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return self.connection.token

    def login(self) -> kopf.ConnectionInfo:
        """The same identity for kopf, with the current token."""
        return dataclasses.replace(self.connection, token=self.bearer())

    def tls(self) -> ssl.SSLContext:
        """For connections to the server. Raises `KubeAccessError` for certificates and keys that cannot be read."""
        try:
            return self.connection.as_ssl_context()
        except (OSError, ValueError) as error:
            raise KubeAccessError(
                f"the certificates for {self.server} cannot be read: {type(error).__name__} {error}"
            ) from error


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
    """The account of the pod that this process runs in. Raises `KubeAccessError`."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        connection = kopf.ConnectionInfo(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            default_namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
            ca_data=(folder / "ca.crt").read_text(encoding="utf-8"),
        )
    except OSError as error:
        raise KubeAccessError(
            f"the service account's files cannot be read ({error}): is automountServiceAccountToken true?"
        ) from error
    return KubeAccess(connection, token_file=folder / "token")


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
        connection = kopf.ConnectionInfo(
            server=cluster["server"].rstrip("/"),
            default_namespace=context.get("namespace"),
            ca_path=_path(cluster, "certificate-authority", path),
            ca_data=cluster.get("certificate-authority-data"),
            certificate_path=_path(user, "client-certificate", path),
            certificate_data=user.get("client-certificate-data"),
            private_key_path=_path(user, "client-key", path),
            private_key_data=user.get("client-key-data"),
            token=user.get("token"),
        )
        return KubeAccess(connection, token_file=_path(user, "tokenFile", path))
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise KubeAccessError(
            f"{path} is no kubeconfig that can be used: {type(error).__name__} {error}"
        ) from error


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise LookupError(f"nothing is named {name!r}")


def _path(entry: Mapping[str, Any], name: str, config: Path) -> Path | None:
    """A relative path starts at the kubeconfig's folder, and data in the file itself win, as in kubectl."""
    return config.parent / entry[name] if name in entry and f"{name}-data" not in entry else None
