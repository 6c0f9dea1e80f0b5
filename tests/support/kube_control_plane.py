"""A real Kubernetes control plane in processes: etcd, kube-apiserver, kube-controller-manager; no nodes.

What only decides is real: validation, admission (Pod Security as well), RBAC, the controllers of StatefulSets,
Jobs, autoscalers, disruption budgets, the garbage collector. No container runs and no scheduler places pods:
`tests.support.kubelet` acts for both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from tests.support.etcd_server import EtcdServer
from tests.support.k8s_install import KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, k8s_missing
from tests.support.kube_access import HOST, Access, Authority
from tests.support.kube_api import SERVICE_ACCOUNT, ApiRefusalError, KubeApi
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

ADMINS = "system:masters"
TOKEN_SECONDS = 3600

_SERVICE_RANGE = "10.96.0.0/16"
_SMALL = {"GOGC": "50"}  # a third less memory for some of the processor's time


class ApiServer(ServerProcess):
    """kube-apiserver over an etcd; its port stays over a restart."""

    def __init__(self, folder: Path, etcd: EtcdServer, authority: Authority) -> None:
        super().__init__("kube-apiserver", folder)
        self.port = free_port()
        self._etcd = etcd
        self._authority = authority
        self._api = KubeApi(self.admin())

    def admin(self) -> Access:
        return self.access("admin", ADMINS)

    def access(self, user: str, group: str | None = None) -> Access:
        """A client with a certificate for that name."""
        certificate = self._authority.identify(user, group)
        return Access(
            server=f"https://{HOST}:{self.port}", ca=self._authority.certificate, certificate=certificate
        )

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it is ready: with the default roles of Kubernetes."""
        keys = self._authority
        command = [
            str(KUBE_APISERVER), "--etcd-servers", self._etcd.endpoint,
            "--bind-address", HOST, "--secure-port", str(self.port),
            "--tls-cert-file", str(keys.server), "--tls-private-key-file", str(keys.server),
            "--client-ca-file", str(keys.certificate), "--authorization-mode", "RBAC",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", str(keys.token_key),
            "--service-account-signing-key-file", str(keys.token_key),
            "--service-cluster-ip-range", _SERVICE_RANGE, "--allow-privileged",
            "--endpoint-reconciler-type", "none",  # an endpoint must not be a loopback address
        ]  # fmt: skip
        self.launch(command, clean_environment() | _SMALL)
        _wait(self, self._is_ready, f"{self.name} is ready", timeout_s)

    def close(self) -> None:
        super().close()
        self._api.close()

    def _is_ready(self) -> bool:
        try:
            return self._api.text("/readyz") == "ok"
        except (ApiRefusalError, urllib3.exceptions.HTTPError):
            return False


class ControllerManager(ServerProcess):
    """kube-controller-manager; each controller has its own service account, with its usual rights."""

    def __init__(self, folder: Path, server: ApiServer, authority: Authority) -> None:
        super().__init__("kube-controller-manager", folder)
        self._authority = authority
        access = server.access("system:kube-controller-manager")
        self._kubeconfig = access.write_kubeconfig(folder / "controller-manager.kubeconfig")

    def start(self) -> None:
        """Start it without waiting."""
        command = [
            str(KUBE_CONTROLLER_MANAGER), "--kubeconfig", str(self._kubeconfig),
            "--use-service-account-credentials", "--root-ca-file", str(self._authority.certificate),
            "--service-account-private-key-file", str(self._authority.token_key),
            "--secure-port", "0", "--leader-elect=false",
            "--kube-api-qps", "500", "--kube-api-burst", "1000",
            "--horizontal-pod-autoscaler-sync-period", "1s",
            # Debian's etcd is too old for lists by watch: each try would fail first.
            "--feature-gates", "WatchListClient=false",
            # Nodes exist by name only: no kubelet reports for them.
            "--node-monitor-grace-period", "24h",
        ]  # fmt: skip
        self.launch(command, clean_environment() | _SMALL)


class ControlPlane:
    """All three. Parts may be stopped and started by tests: `server`, `controllers`, `etcd`."""

    def __init__(self, folder: Path) -> None:
        missing = k8s_missing()
        if missing:
            pytest.skip(missing)
        self._folder = folder
        authority = Authority(folder / "keys")
        self.etcd = EtcdServer(folder)
        self.server = ApiServer(folder, self.etcd, authority)
        self.controllers = ControllerManager(folder, self.server, authority)
        self.admin = KubeApi(self.server.admin())
        self.kubeconfig = self.server.admin().write_kubeconfig(folder / "admin.kubeconfig")

    def start(self) -> None:
        """Ready when the controllers work: they make the account that every pod needs."""
        self.etcd.start()
        self.server.start()
        self.controllers.start()
        _wait(self.controllers, self._has_default_account, f"{self.controllers.name} works", PATIENCE_SEC)

    def restart_controllers(self) -> None:
        """After an outage of the API server a controller may wait up to a minute; new ones start at once."""
        self.controllers.kill9()
        self.controllers.start()

    def close(self) -> None:
        self.admin.close()
        for server in (self.controllers, self.server, self.etcd):
            server.close()

    def user(self, name: str, group: str | None = None) -> Access:
        """A user with a certificate, with the rights of role bindings."""
        return self.server.access(name, group)

    def service_account(self, namespace: str, name: str) -> Access:
        """A pod's credentials for that account: a token, for `TOKEN_SECONDS`. The account must exist."""
        path = self.admin.path(SERVICE_ACCOUNT, name, namespace, "token")
        wanted = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"} | wanted
        given = self.admin.request("POST", path, body=request)
        admin = self.admin.access
        return Access(server=admin.server, ca=admin.ca, token=given["status"]["token"])

    def write_kubeconfig(self, access: Access, name: str, namespace: str = "default") -> Path:
        """A file for a process that acts as that identity; it is deleted with the control plane."""
        return access.write_kubeconfig(self._folder / f"{name}.kubeconfig", namespace)

    def _has_default_account(self) -> bool:
        return self.admin.find(SERVICE_ACCOUNT, "default") is not None


def _wait(server: ServerProcess, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Raises `NotInTimeError` with the server's log, AssertionError if the server has exited."""

    def is_so() -> bool:
        assert server.exit_code is None, f"ended with exit code {server.exit_code}\n{server.log_tail()}"
        return condition()

    try:
        wait_until(is_so, what, timeout_s)
    except NotInTimeError as error:
        raise NotInTimeError(f"{error}\n{server.log_tail()}") from None


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """A control plane that runs in the block. Skips the test if its programs are missing."""
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.close()
