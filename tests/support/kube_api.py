"""A small client of the Kubernetes API: manifests are sent and returned as they are written in YAML."""

import contextlib
import copy
import http
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import urllib3

from tests.support.kube_access import Access
from tests.support.waiting import PATIENCE_SEC

Manifest = dict[str, Any]

FIELD_MANAGER = "tests"

_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Kind:
    """The fields of a manifest that identify it."""

    api_version: str
    kind: str


POD = Kind("v1", "Pod")
SERVICE = Kind("v1", "Service")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
SECRET = Kind("v1", "Secret")
CONFIG_MAP = Kind("v1", "ConfigMap")
EVENT = Kind("v1", "Event")
NAMESPACE = Kind("v1", "Namespace")
NODE = Kind("v1", "Node")
VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim")
STATEFUL_SET = Kind("apps/v1", "StatefulSet")
DEPLOYMENT = Kind("apps/v1", "Deployment")
JOB = Kind("batch/v1", "Job")
CRON_JOB = Kind("batch/v1", "CronJob")
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget")
LEASE = Kind("coordination.k8s.io/v1", "Lease")
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class ApiRefusalError(Exception):
    """The API server refused. `reason` is Kubernetes' word for it, such as Forbidden, Invalid, NotFound."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class KubeApi:
    """The API as one identity sees it. Safe for several threads.

    Kinds that live in namespaces are looked for in `namespace` unless a call names another. Every method raises
    `ApiRefusalError` for what the server refuses, and urllib3's errors where it cannot be reached.
    """

    def __init__(self, access: Access, namespace: str = "default") -> None:
        self.access = access
        self.namespace = namespace
        certificate = None if access.certificate is None else str(access.certificate)
        self._headers = {} if access.token is None else {"authorization": f"Bearer {access.token}"}
        self._pool = urllib3.PoolManager(
            ca_certs=str(access.ca), cert_file=certificate, key_file=certificate, maxsize=8, retries=False
        )
        self._resources: dict[Kind, tuple[str, bool]] = {}

    def within(self, namespace: str) -> "KubeApi":
        """The same identity and connections, in another namespace."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    def close(self) -> None:
        self._pool.clear()

    def create(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Manifest:
        """Create an object; returns the server's version of it."""
        return self.request("POST", self._path_of(manifest, namespace, named=False), body=manifest)

    def apply(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Manifest:
        """Create it or change it to the manifest, as `kubectl apply --server-side --force-conflicts`."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = self._path_of(manifest, namespace, named=True)
        return self.request("PATCH", path, body=manifest, content_type=_APPLY, query=query)

    def replace(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Manifest:
        """Refused with reason Conflict when the manifest has the resourceVersion of an older state."""
        return self.request("PUT", self._path_of(manifest, namespace, named=True), body=manifest)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest:
        return self.request("GET", self.path(kind, name, namespace))

    def find(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        """The object, or None."""
        try:
            return self.get(kind, name, namespace)
        except ApiRefusalError as refusal:
            if refusal.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def select(self, kind: Kind, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        """The objects with the labels, sorted by name; of all namespaces if that is "*"."""
        answer = self.request("GET", self.path(kind, None, namespace), query={"labelSelector": labels})
        items: list[Manifest] = answer["items"]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def patch(
        self,
        kind: Kind,
        name: str,
        change: Mapping[str, Any] | list[Mapping[str, Any]],
        namespace: str | None = None,
        subresource: str = "",
    ) -> Manifest:
        """A merge patch (lists are replaced whole), or a JSON patch when it is a list. None removes a field."""
        content_type = _JSON_PATCH if isinstance(change, list) else _MERGE
        path = self.path(kind, name, namespace, subresource)
        return self.request("PATCH", path, body=change, content_type=content_type)

    def scale(self, kind: Kind, name: str, replicas: int, namespace: str | None = None) -> None:
        """Scale as an autoscaler does."""
        self.patch(kind, name, {"spec": {"replicas": replicas}}, namespace, subresource="scale")

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        """`propagation` is Background, Foreground or Orphan; with `uid` it is that object or none (Conflict)."""
        options: Manifest = {"propagationPolicy": propagation}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        self.request("DELETE", self.path(kind, name, namespace), body=options)

    def evict(self, pod: str, namespace: str | None = None) -> None:
        """Delete the pod as a drain does it: refused with reason TooManyRequests where a budget forbids it."""
        metadata = {"name": pod, "namespace": namespace or self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        self.request("POST", self.path(POD, pod, namespace, "eviction"), body=eviction)

    @contextmanager
    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, timeout_s: int = 300
    ) -> Iterator["Watch"]:
        """The events after that version, until the server closes the watch or `Watch.stop` is called."""
        query = {"watch": "1", "resourceVersion": resource_version, "timeoutSeconds": str(timeout_s)}
        answer = self._send("GET", self.path(kind, None, namespace), query=query, read_s=timeout_s + 10.0)
        try:
            yield Watch(answer)
        finally:
            answer.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        """A request to any path of the API; returns the JSON of the response."""
        answer = self._send(method, path, body=body, content_type=content_type, query=query)
        try:
            given: Manifest = json.loads(answer.data)
        finally:
            answer.release_conn()
        return given

    def text(self, path: str) -> str:
        """A response that is no JSON, such as /readyz and /metrics."""
        answer = self._send("GET", path)
        try:
            return answer.data.decode()
        finally:
            answer.release_conn()

    def path(self, kind: Kind, name: str | None, namespace: str | None = None, subresource: str = "") -> str:
        """The path of an object; of all of its kind without a name. The server names the kind."""
        plural, namespaced = self._resource(kind)
        parts = [_root(kind.api_version)]
        if namespaced and namespace != "*":
            parts += ["namespaces", namespace or self.namespace]
        parts.append(plural)
        return "/".join([*parts, *filter(None, (name, subresource))])

    def serves(self, kind: Kind) -> bool:
        """True if the server serves the kind by now: a custom one takes a moment."""
        self._resources.pop(kind, None)
        try:
            self.request("GET", self.path(kind, None), query={"limit": "1"})
        except LookupError:
            return False
        except ApiRefusalError as refusal:
            if refusal.status == http.HTTPStatus.NOT_FOUND:  # announced, and not yet served
                return False
            raise
        return True

    def _path_of(self, manifest: Mapping[str, Any], namespace: str | None, *, named: bool) -> str:
        kind = Kind(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        return self.path(kind, metadata["name"] if named else None, namespace or metadata.get("namespace"))

    def _resource(self, kind: Kind) -> tuple[str, bool]:
        """The kind's name in paths, and if it is namespaced. Raises LookupError."""
        if kind not in self._resources:
            try:
                served = self.request("GET", _root(kind.api_version))["resources"]
            except ApiRefusalError as refusal:
                raise LookupError(f"the API server has no {kind.api_version}: {refusal}") from refusal
            for each in served:
                if "/" not in each["name"]:  # those are subresources
                    self._resources[Kind(kind.api_version, each["kind"])] = (each["name"], each["namespaced"])
        if kind not in self._resources:
            raise LookupError(f"the API server has no kind {kind.kind} in {kind.api_version}")
        return self._resources[kind]

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        read_s: float = PATIENCE_SEC,
    ) -> urllib3.BaseHTTPResponse:
        """Raises `ApiRefusalError`."""
        url = self.access.server + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        answer = self._pool.request(
            method,
            url,
            body=None if body is None else json.dumps(body).encode(),
            headers=self._headers | {"content-type": content_type},
            timeout=urllib3.Timeout(connect=PATIENCE_SEC, read=read_s),
            preload_content=False,
        )
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise _refusal(answer)
        return answer


class Watch:
    """Events as they come: the type (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR) and the object."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._stopped = False

    def __iter__(self) -> Iterator[tuple[str, Manifest]]:
        begun = b""
        while data := self._read():
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]

    def stop(self) -> None:
        """Stop the iteration, from any thread."""
        self._stopped = True
        with contextlib.suppress(RuntimeError, ValueError):  # the server has just closed it
            self._answer.shutdown()

    def _read(self) -> bytes:
        """Empty at the end."""
        try:
            return b"" if self._stopped else self._answer.read1()
        except urllib3.exceptions.HTTPError:
            if self._stopped:
                return b""
            raise


def _refusal(answer: urllib3.BaseHTTPResponse) -> ApiRefusalError:
    text = answer.data.decode(errors="replace")
    answer.release_conn()
    try:
        status = json.loads(text)
    except ValueError:
        return ApiRefusalError(answer.status, answer.reason or "", text)
    return ApiRefusalError(answer.status, status.get("reason", ""), status.get("message", text))


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
