"""The operator as a process of its own, with the rights and the environment from the chart."""

import contextlib
import itertools
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kafscale.operator import api_names
from tests.support.helm import Manifest, only, rendered
from tests.support.kube_access import Access
from tests.support.kube_api import LEASE, SERVICE_ACCOUNT, ApiRefusalError, Kind, KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

RELEASE = "test"
IMAGE = "kafscale:test"

_RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_numbers = itertools.count(1)


class OperatorProcess(ServerProcess):
    """One replica. It may be killed and started again."""

    def __init__(self, name: str, folder: Path, kubeconfig: Path, environment: Mapping[str, str]) -> None:
        super().__init__(name, folder)
        self._kubeconfig = kubeconfig
        self._environment = dict(environment)
        self.port = free_port()

    def start(self) -> None:
        """Start it. It works once it leads."""
        own = {
            "KUBECONFIG": str(self._kubeconfig),
            "KAFSCALE_OPERATOR_METRICS_ADDR": f"127.0.0.1:{self.port}",
        }
        command = [sys.executable, "-m", "kafscale", "operator"]
        self.launch(command, clean_environment() | self._environment | own)

    def page(self, path: str) -> str:
        """The response of its health endpoint."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SEC) as answer:
            return str(answer.read().decode())


class Operators:
    """The replicas of one installation that manages its own namespace, or all."""

    def __init__(self, plane: ControlPlane, api: KubeApi, folder: Path, *, everywhere: bool) -> None:
        self._plane = plane
        self._api = api
        self._folder = folder
        self._chart = rendered(
            folder,
            {
                "operator": {"watchAllNamespaces": everywhere},
                "image": {"repository": "kafscale", "tag": "test"},
            },
            release=RELEASE,
            namespace=api.namespace,
        )
        self._replicas: list[OperatorProcess] = []
        self._rights = [each for each in self._chart if each["kind"] in _RIGHTS]

    @property
    def deployment(self) -> Manifest:
        """The command of the replicas."""
        return only(self._chart, "Deployment")

    def install(self) -> None:
        """Create the rights. The definitions exist already."""
        for manifest in self._rights:
            self._api.apply(manifest)

    def replica(self, name: str = "operator", server: str | None = None) -> OperatorProcess:
        """One more, not started. `server`: another URL of the API server, such as a proxy's."""
        pod = self.deployment["spec"]["template"]["spec"]
        access: Access = self._plane.service_account(self._api.namespace, pod["serviceAccountName"])
        if server is not None:
            access = replace(access, server=server)
        kubeconfig = self._plane.write_kubeconfig(
            access, f"{self._api.namespace}-{name}-{next(_numbers)}", self._api.namespace
        )
        container = pod["containers"][0]
        assert container["args"] == ["operator"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        environment["KAFSCALE_OPERATOR_LOG_LEVEL"] = "debug"
        replica = OperatorProcess(name, self._folder, kubeconfig, environment)
        self._replicas.append(replica)
        return replica

    def leader(self) -> str:
        """The owner of the lease; empty if there is none."""
        found = self._api.select(LEASE)
        return str(found[0]["spec"].get("holderIdentity") or "") if found else ""

    def remove(self) -> None:
        """Stop every replica, and delete what belongs to no namespace."""
        for replica in self._replicas:
            replica.close()
        for manifest in self._rights:
            if (
                manifest["kind"].startswith("Cluster")
                and manifest["metadata"]["name"] != api_names.NODE_READER_ROLE
            ):
                kind = Kind(manifest["apiVersion"], manifest["kind"])
                with contextlib.suppress(ApiRefusalError):
                    self._api.delete(kind, manifest["metadata"]["name"])


@contextmanager
def operators(
    plane: ControlPlane, api: KubeApi, folder: Path, *, everywhere: bool = False
) -> Iterator[Operators]:
    """Installed in the block; none is started."""
    installed = Operators(plane, api, folder, everywhere=everywhere)
    installed.install()
    wait_until(lambda: api.find(SERVICE_ACCOUNT, _account(installed)), "the operator's account is there")
    try:
        yield installed
    finally:
        installed.remove()


def _account(installed: Operators) -> str:
    account: Manifest = only(installed._rights, "ServiceAccount")
    return str(account["metadata"]["name"])
