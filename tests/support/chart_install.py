"""helm as an administrator of a control plane: the chart is installed, changed and removed."""

from pathlib import Path
from typing import Any

from tests.support.helm import CHART, run_helm, values_file
from tests.support.kube_api import KubeApi
from tests.support.kube_control_plane import ControlPlane


class Helm:
    """In one namespace. `folder`: for its caches and files of values."""

    def __init__(self, plane: ControlPlane, api: KubeApi, folder: Path) -> None:
        self._folder = folder
        access = plane.admin.access
        self._kubeconfig = plane.write_kubeconfig(access, f"{api.namespace}-helm", api.namespace)

    def run(self, *arguments: str) -> str:
        """The output of helm. Raises `HelmError` if it fails."""
        return run_helm(*arguments, home=self._folder, kubeconfig=self._kubeconfig, timeout_s=120.0)

    def install(self, release: str, values: dict[str, Any]) -> str:
        """Installs the release, or upgrades it; returns the output."""
        path = str(values_file(self._folder, values))
        return self.run("upgrade", "--install", release, str(CHART), "--values", path)
