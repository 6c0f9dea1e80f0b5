"""KafscaleExports and what they own in the Kubernetes API in memory."""

from collections.abc import Mapping
from typing import Any

from kafscale.operator.kube.kinds import CRON_JOB, DEPLOYMENT, EXPORT, POD, Kind, kind_of
from tests.support.kube_memory import NAMESPACE, KubeMemory, Manifest

SPEC: dict[str, Any] = {
    "clusterRef": {"name": "c"},
    "image": "registry.example.com/export:1",
    "topics": {"names": ["orders"]},
    "catalog": {"type": "jdbc", "properties": {"uri": "jdbc:postgresql://db/iceberg"}},
    "schedule": "*/15 * * * *",
}
"""The least that a schedule of one topic needs."""


class KubeExports(KubeMemory):
    """The part that `ExportApi` needs. `applied`: how often an object was."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0

    def add_export(self, name: str = "e", **parts: Any) -> None:
        """One with `SPEC`; None leaves a part out."""
        self.add(EXPORT, name, {key: value for key, value in {**SPEC, **parts}.items() if value is not None})

    def change_export(self, name: str = "e", **parts: Any) -> None:
        found = self._objects[EXPORT.plural, name]
        spec = {**found["spec"], **parts}
        found["spec"] = {key: value for key, value in spec.items() if value is not None}
        found["metadata"]["generation"] += 1
        self._touch(found)

    def export_status(self, name: str = "e") -> Manifest:
        found: Manifest = self._objects[EXPORT.plural, name].get("status", {})
        return found

    def verdict(self, name: str = "e") -> tuple[str, str, str]:
        """Phase, reason and message."""
        status = self.export_status(name)
        (found,) = status["conditions"]
        return status["phase"], found["reason"], found["message"]

    def workload(self, kind: Kind, name: str = "e-export") -> Manifest | None:
        return self._objects.get((kind.plural, name))

    def pod_spec(self) -> Manifest:
        """Of the only workload."""
        job, deployment = self.workload(CRON_JOB), self.workload(DEPLOYMENT)
        assert (job is None) != (deployment is None)
        found: Manifest
        if job is not None:
            found = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        else:
            assert deployment is not None
            found = deployment["spec"]["template"]["spec"]
        return found

    def set_status(self, kind: Kind, status: Mapping[str, Any], name: str = "e-export") -> None:
        """As Kubernetes' controllers write it."""
        self._objects[kind.plural, name]["status"] = dict(status)

    def put(self, manifest: Manifest) -> None:
        """An object that somebody made."""
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        self._objects[kind.plural, manifest["metadata"]["name"]] = manifest

    def add_waiting_pod(self, name: str, reason: str) -> None:
        """A pod of the export whose container waits for that reason."""
        waiting = {"state": {"waiting": {"reason": reason, "message": "because"}}}
        self.put(
            {
                "apiVersion": POD.api_version,
                "kind": POD.kind,
                "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
                "status": {"phase": "Pending", "containerStatuses": [waiting]},
            }
        )

    async def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        self.applied += 1
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        before = self._objects.get((kind.plural, manifest["metadata"]["name"]), {})
        await super().apply(manifest)
        found = self._objects[kind.plural, manifest["metadata"]["name"]]
        if "status" in before:
            found["status"] = before["status"]
        return found

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        assert namespace == NAMESPACE
        found = self._objects.get((kind.plural, name))
        if found is None or uid not in (None, found["metadata"]["uid"]):
            return False
        del self._objects[kind.plural, name]
        return True
