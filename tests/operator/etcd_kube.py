"""A Kubernetes API in memory, as far as the managed etcd's reconciler uses it, with one cluster in it."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.errors import KubeRefusedError, LeadershipLostError
from kafscale.operator.kube.kinds import CLUSTER, CONFIG_MAP, POD, STATEFUL_SET, Kind, kind_of

Manifest = dict[str, Any]
NAMESPACE = "ns"
NAME = "c"


class EtcdKube:
    """Objects by kind and name. `leads` False: whatever is written is refused. `events`: reason and message."""

    def __init__(self, **managed: Any) -> None:
        self.leads = True
        self.events: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self._objects: dict[tuple[str, str], Manifest] = {}
        self._numbers = itertools.count(1)
        self._put(
            {
                "apiVersion": CLUSTER.api_version,
                "kind": CLUSTER.kind,
                "metadata": {"name": NAME, "namespace": NAMESPACE, "generation": 1, "annotations": {}},
                "spec": {"brokers": {"replicas": 3}, "s3": {"bucket": "b"}, "etcd": {"managed": managed}},
            }
        )

    @property
    def resource(self) -> Manifest:
        """The cluster, to be changed by a test."""
        return self._objects[CLUSTER.kind, NAME]

    def names(self) -> set[tuple[str, str]]:
        """Kind and name of everything but the cluster."""
        return self._objects.keys() - {(CLUSTER.kind, NAME)}

    def start(self) -> dict[str, str]:
        """The arguments of members that start without data."""
        found: dict[str, str] = self._objects[CONFIG_MAP.kind, "c-etcd-start"]["data"]
        return found

    def etcd_set(self) -> Manifest:
        return self._objects[STATEFUL_SET.kind, "c-etcd"]

    def remove(self, kind: Kind, name: str) -> None:
        del self._objects[kind.kind, name]

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        found = self.resource.get("status", {}).get("conditions", [])
        return next(
            ((c["status"], c["reason"], c["message"]) for c in found if c["type"] == kind), ("", "", "")
        )

    def put_pod(self, name: str, state: Manifest, last_state: Manifest | None = None) -> None:
        """A member's pod, with its container in this state."""
        status = {"name": "etcd", "state": state, "lastState": last_state or {}}
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": api_names.labels(NAME, "etcd"),
        }
        self._put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "status": {"containerStatuses": [status]},
            }
        )

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        assert namespace == NAMESPACE
        return copy.deepcopy(self._objects.get((kind.kind, name)))

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        assert (kind, namespace) == (POD, NAMESPACE)
        return [
            copy.deepcopy(each)
            for (found, _), each in sorted(self._objects.items())
            if found == kind.kind and (labels or {}).items() <= each["metadata"]["labels"].items()
        ]

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        self._may_write()
        if self._key(manifest) in self._objects:
            raise KubeRefusedError(409, "AlreadyExists", manifest["metadata"]["name"])
        return self._put(manifest)

    async def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        self._may_write()
        live = self._objects.get(self._key(manifest))
        version = manifest["metadata"].get("resourceVersion")
        if version is not None and (live is None or live["metadata"]["resourceVersion"] != version):
            raise KubeRefusedError(409, "Conflict", manifest["metadata"]["name"])
        same = live is not None and {k: v for k, v in live.items() if k != "metadata"} == {
            k: v for k, v in manifest.items() if k != "metadata"
        }
        return copy.deepcopy(live) if same and live is not None else self._put(manifest)

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any], *, field_manager: str
    ) -> Manifest:
        self._may_write()
        assert (kind, namespace, name) == (CLUSTER, NAMESPACE, NAME)
        self.resource["status"] = copy.deepcopy(dict(status))
        return copy.deepcopy(self.resource)

    async def event(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        self._may_write()
        self.events.append((reason, message))
        if warning:
            self.warnings.append(reason)

    def _may_write(self) -> None:
        if not self.leads:
            raise LeadershipLostError("another operator may lead by now")

    def _key(self, manifest: Mapping[str, Any]) -> tuple[str, str]:
        return kind_of(manifest["apiVersion"], manifest["kind"]).kind, manifest["metadata"]["name"]

    def _put(self, manifest: Mapping[str, Any]) -> Manifest:
        number = str(next(self._numbers))
        found = copy.deepcopy(dict(manifest))
        before = self._objects.get(self._key(found), {"metadata": {"uid": f"uid-{number}"}})
        found["metadata"] |= {"resourceVersion": number, "uid": before["metadata"]["uid"]}
        self._objects[self._key(found)] = found
        return copy.deepcopy(found)
