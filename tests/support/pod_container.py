"""A pod's container, run as a kubelet would: from the pod's manifest, in the image of the Dockerfile."""

import base64
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.dockerfile import Stage
from tests.support.image_build import Image
from tests.support.kube_api import CONFIG_MAP, SECRET, KubeApi, Manifest
from tests.support.kube_control_plane import ControlPlane
from tests.support.process import ServerProcess

_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# In the image /var/run is a link, which would lead out of it from here.
_ACCOUNT_FOLDER = "/run/secrets/kubernetes.io/serviceaccount"
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")
_REFERENCE = re.compile(r"\$\((\w+)\)")


class PodContainer(ServerProcess):
    """The only container of a pod that the API server has. Its network is this machine's: `instead` has the variables
    that are another's because of that."""

    def __init__(
        self,
        plane: ControlPlane,
        api: KubeApi,
        pod: Manifest,
        image: tuple[Image, Stage],
        folder: Path,
        instead: Mapping[str, str],
    ) -> None:
        super().__init__(pod["metadata"]["name"], folder)
        self._plane, self._api, self._pod = plane, api, pod
        self._image, self._stage = image
        (self._container,) = pod["spec"]["containers"]
        self._instead = dict(instead)

    def start(self) -> None:
        """Start it; does not wait."""
        self._assert_restricted()
        mounts: dict[str, Path] = {}
        if _ACCOUNT_MOUNT in self._mount_paths():
            mounts[_ACCOUNT_FOLDER] = self._account()
        command = [*self._stage.last("ENTRYPOINT").words(), *self._container["args"]]
        self.launch(self._image.command(command, writable=False, mounts=mounts), self.environment())

    def environment(self) -> dict[str, str]:
        """The image's, the service's of the API server, and the container's."""
        host, _, port = self._plane.admin.access.server.removeprefix("https://").partition(":")
        found = self._image.environment | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        for source in self._container.get("envFrom", ()):
            found |= self._api.get(CONFIG_MAP, source["configMapRef"]["name"])["data"]
        for variable in self._container.get("env", ()):
            value = self._value(variable)
            if value is not None:
                found[variable["name"]] = _REFERENCE.sub(lambda name: found.get(name[1], name[0]), value)
        return found | self._instead

    def _value(self, variable: Mapping[str, Any]) -> str | None:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            data = self._api.get(SECRET, reference["name"])["data"]
            if reference.get("optional") and reference["key"] not in data:
                return None
            return base64.b64decode(data[reference["key"]]).decode()
        return str(variable.get("value", ""))

    def _field(self, path: str) -> str:
        label = _LABEL.fullmatch(path)
        if label is not None:
            return str(self._pod["metadata"]["labels"][label[1]])
        found: Any = self._pod
        for part in path.split("."):
            found = found[part]
        return str(found)

    def _account(self) -> Path:
        """The files of the pod's service account."""
        folder = self.folder / f"{self.name}-account"
        folder.mkdir(exist_ok=True)
        account = self._pod["spec"]["serviceAccountName"]
        access = self._plane.service_account(self._api.namespace, account)
        assert access.token is not None
        (folder / "token").write_text(access.token)
        (folder / "namespace").write_text(self._api.namespace)
        shutil.copyfile(access.ca, folder / "ca.crt")
        self._image.where(_ACCOUNT_FOLDER).mkdir(parents=True, exist_ok=True)
        return folder

    def _assert_restricted(self) -> None:
        """It runs as the manifest requires, which must be how we run it."""
        of_pod, of_container = self._pod["spec"]["securityContext"], self._container["securityContext"]
        assert (of_pod["runAsUser"], of_pod["runAsGroup"]) == (10001, 10001)
        assert of_container["readOnlyRootFilesystem"] and not of_container["allowPrivilegeEscalation"]
        assert of_container["capabilities"] == {"drop": ["ALL"]}
        assert set(self._mount_paths()) - {_ACCOUNT_MOUNT} == {"/tmp"}

    def _mount_paths(self) -> list[str]:
        """Kubernetes adds that of the account's token, if the pod has one."""
        return [each["mountPath"] for each in self._container["volumeMounts"]]
