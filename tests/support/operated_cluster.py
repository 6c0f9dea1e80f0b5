"""Reads an operator's results for a KafscaleCluster."""

from collections.abc import Callable
from typing import Any

from kafscale.operator import api_names
from tests.support.kube_api import EVENT, POD, STATEFUL_SET, Kind, KubeApi, Manifest
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

CLUSTER = Kind(api_names.API_VERSION, api_names.CLUSTER)
CLUSTER_ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")


class OperatedCluster:
    """One cluster by its name, in the API's namespace."""

    def __init__(self, api: KubeApi, name: str = "c") -> None:
        self.api = api
        self.name = name

    def make(self, **parts: Any) -> Manifest:
        """Create one with the least, and these parts of `spec`; None leaves one out."""
        return self.api.create(cluster_manifest(self.name, **parts))

    def change(self, **parts: Any) -> Manifest:
        """Parts of `spec` merged into it; None removes one."""
        return self.api.patch(CLUSTER, self.name, {"spec": parts})

    def delete(self) -> None:
        self.api.delete(CLUSTER, self.name)

    def status(self) -> Manifest:
        """Empty before the operator has written it, and when the cluster is gone."""
        found = self.api.find(CLUSTER, self.name)
        return {} if found is None else found.get("status", {})

    def condition(self, kind: str) -> Manifest:
        """The condition of that type; empty if there is none."""
        conditions: list[Manifest] = self.status().get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_phase(self, phase: str, timeout_s: float = PATIENCE_SEC) -> Manifest:
        """Wait until it is in that phase as of the newest specification; its status."""

        def is_there() -> bool:
            found = self.api.get(CLUSTER, self.name)
            status = found.get("status", {})
            seen = (status.get("phase"), status.get("observedGeneration"))
            return bool(seen == (phase, found["metadata"]["generation"]))

        self.wait(is_there, f"phase {phase}", timeout_s)
        return self.status()

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_SEC) -> None:
        """`wait_until`, with the cluster's status if it fails."""
        try:
            wait_until(condition, what, timeout_s)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}; the status is {self.status()}") from None

    def broker_set(self) -> Manifest:
        """The brokers' StatefulSet."""
        return self.api.get(STATEFUL_SET, f"{self.name}-broker")

    def replicas(self) -> int:
        """The number of brokers that the StatefulSet is to have."""
        return int(self.broker_set()["spec"]["replicas"])

    def pods(self) -> dict[str, Manifest]:
        """The brokers' pods by their names."""
        labels = f"{api_names.INSTANCE}={self.name},{api_names.COMPONENT}=broker"
        return {each["metadata"]["name"]: each for each in self.api.select(POD, labels=labels)}

    def uids(self) -> dict[str, str]:
        """The identities of the pods: a replaced pod has another one."""
        return {name: str(pod["metadata"]["uid"]) for name, pod in self.pods().items()}

    def node_readers(self) -> list[str]:
        """The accounts of its namespace that may read nodes."""
        found = self.api.find(CLUSTER_ROLE_BINDING, api_names.NODE_READER_ROLE) or {}
        subjects = found.get("subjects") or ()
        return [str(each["name"]) for each in subjects if each["namespace"] == self.api.namespace]

    def events(self) -> dict[str, Manifest]:
        """The events of the cluster, by reason; the newest of each."""
        told = [
            each for each in self.api.select(EVENT) if each["involvedObject"]["kind"] == api_names.CLUSTER
        ]
        ours = [each for each in told if each["involvedObject"]["name"] == self.name]
        return {each["reason"]: each for each in sorted(ours, key=lambda each: str(each["lastTimestamp"]))}


def apply_node_reader_binding(api: KubeApi) -> None:
    """The binding of the chart, of which operators maintain the subjects."""
    api.apply(
        {
            "apiVersion": CLUSTER_ROLE_BINDING.api_version,
            "kind": CLUSTER_ROLE_BINDING.kind,
            "metadata": {"name": api_names.NODE_READER_ROLE},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": api_names.NODE_READER_ROLE,
            },
        }
    )


def cluster_manifest(name: str = "c", **parts: Any) -> Manifest:
    """A KafscaleCluster with the least, and these parts of `spec`; None leaves one out."""
    spec = {
        "brokers": {"replicas": 3},
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["http://etcd:2379"]},
        **parts,
    }
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.CLUSTER,
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def is_ready(pod: Manifest) -> bool:
    """True if its readiness probes pass."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
