"""A Kubernetes API in memory, as far as reconcilers use it: objects, versions, statuses, events."""

import copy
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.errors import KubeRefusedError
from kafscale.operator.kube.kinds import CLUSTER, TOPIC, Kind, kind_of

Manifest = dict[str, Any]

NAMESPACE = "ns"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class KubeMemory:
    """The part that `ResourceApi` needs. `events`: reason and message of each, in order.

    `after_next_put` is called once, when a status was written and before its writer knows.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.after_next_put: Callable[[], object] | None = None
        self._objects: dict[tuple[str, str], Manifest] = {}
        self._numbers = itertools.count(1)

    def add(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        """A new object, with the operator's finalizer."""
        number = next(self._numbers)
        self._objects[kind.plural, name] = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": f"uid-{number}",
                "generation": 1,
                "resourceVersion": str(number),
                "creationTimestamp": (_BEGIN + timedelta(seconds=number)).isoformat(),
                "finalizers": [api_names.FINALIZER],
            },
            "spec": dict(spec),
        }

    def add_cluster(self, name: str = "c", **parts: Any) -> None:
        spec = {
            "brokers": {"replicas": 1},
            "s3": {"bucket": "records"},
            "etcd": {"endpoints": ["http://etcd:2379"]},
        }
        self.add(CLUSTER, name, spec | parts)

    def add_topic(self, name: str, *, cluster: str = "c", **parts: Any) -> None:
        spec = {"clusterRef": {"name": cluster}, "partitions": 1, "deletionPolicy": "Delete", **parts}
        self.add(TOPIC, name, spec)

    def topic(self, name: str) -> Manifest:
        return self._objects[TOPIC.plural, name]

    def status(self, name: str) -> Manifest:
        found: Manifest = self.topic(name).get("status", {})
        return found

    def condition(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message of the only condition."""
        (found,) = self.status(name)["conditions"]
        return found["status"], found["reason"], found["message"]

    def change(self, name: str, **parts: Any) -> None:
        """Change a topic's specification; None removes a part."""
        found = self.topic(name)
        spec = {**found["spec"], **parts}
        found["spec"] = {key: value for key, value in spec.items() if value is not None}
        found["metadata"]["generation"] += 1
        self._touch(found)

    def begin_deletion(self, kind: Kind, name: str) -> None:
        found = self._objects[kind.plural, name]
        found["metadata"]["deletionTimestamp"] = _BEGIN.isoformat()
        self._touch(found)

    def remove(self, kind: Kind, name: str) -> None:
        del self._objects[kind.plural, name]

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        assert namespace == NAMESPACE
        return copy.deepcopy(self._objects.get((kind.plural, name)))

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        assert namespace == NAMESPACE
        return [
            copy.deepcopy(each)
            for (plural, _), each in sorted(self._objects.items())
            if plural == kind.plural
        ]

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Manifest:
        assert body is not None
        name, kind = body["metadata"]["name"], kind_of(body["apiVersion"], body["kind"])
        assert (method, path) == ("PUT", kind.path(NAMESPACE, name, "status"))
        found = self._objects.get((kind.plural, name))
        if found is None:
            raise KubeRefusedError(404, "NotFound", name)
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise KubeRefusedError(409, "Conflict", name)
        found["status"] = copy.deepcopy(dict(body["status"]))
        self._touch(found)
        given = copy.deepcopy(found)
        callback, self.after_next_put = self.after_next_put, None
        if callback is not None:
            callback()
        return given

    async def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """The whole object becomes the manifest; other field managers are left out."""
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        key = kind.plural, manifest["metadata"]["name"]
        before = self._objects.get(key, {"metadata": {"uid": f"uid-{next(self._numbers)}"}})
        found = copy.deepcopy(dict(manifest))
        found["metadata"]["uid"] = before["metadata"]["uid"]
        self._objects[key] = found
        self._touch(found)
        return copy.deepcopy(found)

    async def event(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        self.events.append((reason, message))
        if warning:
            self.warnings.append(reason)

    def _touch(self, found: Manifest) -> None:
        found["metadata"]["resourceVersion"] = str(next(self._numbers))
