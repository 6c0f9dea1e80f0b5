"""Acts for the scheduler and the kubelets of a cluster without nodes: pods get a node, a status and an end.

A pod becomes ready at once and one of a Job succeeds at once, unless a test decides otherwise. A pod that is
deleted ends at once too, unless its end is held: until then it is terminating, as one that takes its grace period.
"""

import fnmatch
import http
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import urllib3

from tests.support.kube_api import NODE, POD, ApiRefusalError, KubeApi, Manifest, Watch
from tests.support.pod_status import Fate, is_changed, is_over, status_for
from tests.support.waiting import PATIENCE_SEC, wait_until

__all__ = ["Fate", "Kubelet", "acting_kubelet"]

ZONES = {"node-1": "zone-a", "node-2": "zone-b", "node-3": "zone-c"}

# The pod changed or was deleted between our read and our write; the next event has its state.
_OVERTAKEN = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT)
# The server is starting, or has compacted the version from which we watch: list again.
_PASSING = (http.HTTPStatus.GONE, http.HTTPStatus.TOO_MANY_REQUESTS)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: str
    fate: Fate | None


class Kubelet:
    """For the pods of one namespace, or of all ("*"). Its methods may be called from any thread.

    Pods are named by shell patterns, as `web-*`; what was decided last counts. It holds for pods that come later
    too, such as the next pod of the same name.
    """

    def __init__(self, api: KubeApi, namespace: str = "*") -> None:
        self._api = api
        self._namespace = namespace
        self._lock = threading.RLock()
        self._rules: list[_Rule] = []
        self._held: set[str] = set()
        self._pods: dict[str, Manifest] = {}  # by uid
        self._addresses = itertools.count(1)
        self._nodes = itertools.cycle(ZONES)
        self._node_of: dict[str, str] = {}  # by uid: a pod may be bound again before the event of it has come
        self._watch: Watch | None = None
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def decide(self, pattern: str, fate: Fate | None) -> None:
        """Decide the fate of those pods, now and later; None: the default.

        CRASHING and then READY is a crash and a restart. A pod that succeeded or failed stays so.
        """
        with self._lock:
            self._rules.append(_Rule(pattern, fate))
            self._settle_all()

    def hold_end(self, pattern: str) -> None:
        """Those pods, once deleted, are terminating until `let_end`."""
        with self._lock:
            self._held.add(pattern)

    def let_end(self, pattern: str) -> None:
        """Undo `hold_end` of the same pattern."""
        with self._lock:
            self._held.discard(pattern)
            self._settle_all()

    def start(self) -> None:
        """Create the nodes, unless they exist, and start."""
        for name, zone in ZONES.items():
            if self._api.find(NODE, name) is None:
                _make_node(self._api, name, zone)
        self._thread.start()

    def stop(self) -> None:
        """Raises the error that stopped it, if there was one."""
        with self._lock:
            self._stopping = True
            if self._watch is not None:
                self._watch.stop()
        self._thread.join(timeout=PATIENCE_SEC)
        assert not self._thread.is_alive(), "the kubelet's thread does not end"
        if self._failure is not None:
            raise AssertionError("the kubelet ended before it was stopped") from self._failure

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._follow(self._list())
                except (ApiRefusalError, urllib3.exceptions.HTTPError) as error:
                    if isinstance(error, ApiRefusalError) and not _will_pass(error):
                        raise
                    wait_until(self._stopped_or_answered, "the API server answers again", 120)
        except Exception as error:  # noqa: BLE001 - told by `stop`
            self._failure = error

    def _stopped_or_answered(self) -> bool:
        try:
            return self._stopping or self._api.text("/readyz") == "ok"
        except (ApiRefusalError, urllib3.exceptions.HTTPError):
            return False

    def _list(self) -> str:
        """Handle all pods in their current state; returns the version of that."""
        answer = self._api.request("GET", self._api.path(POD, None, self._namespace))
        with self._lock:
            self._pods = {pod["metadata"]["uid"]: pod for pod in answer["items"]}
            self._settle_all()
        return str(answer["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        """Watch until the server closes the watch or has compacted that version."""
        with self._api.watch(POD, version, self._namespace) as events:
            with self._lock:
                self._watch = events
                if self._stopping:
                    return
            for kind, pod in events:
                if kind == "ERROR":
                    return
                with self._lock:
                    self._take(kind, pod)

    def _take(self, event: str, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if event == "DELETED":
            self._pods.pop(uid, None)
            return
        known = self._pods.get(uid)
        if known is None or _version(known) < _version(pod):  # our own write may have been seen before
            self._pods[uid] = pod
            self._settle(pod)

    def _settle_all(self) -> None:
        for pod in list(self._pods.values()):
            self._settle(pod)

    def _settle(self, pod: Manifest) -> None:
        """Do what is due for the pod, if anything."""
        if self._stopping:
            return
        try:
            if pod["metadata"].get("deletionTimestamp"):
                self._end(pod)
            elif not pod["spec"].get("nodeName"):
                self._bind(pod)  # the event of that comes back here
            elif not is_over(pod):
                self._write(pod, self._fate(pod))
        except ApiRefusalError as refusal:
            if refusal.status not in _OVERTAKEN:
                raise

    def _end(self, pod: Manifest) -> None:
        """A kubelet's last step after the last container of a deleted pod has exited."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        held = any(fnmatch.fnmatchcase(name, pattern) for pattern in self._held)
        if pod["spec"].get("nodeName") and not is_over(pod):
            self._write(pod, self._fate(pod) if held else Fate.SUCCEEDED)
        if held:
            return
        if pod["metadata"].get("deletionGracePeriodSeconds") != 0:
            self._api.delete(POD, name, namespace, grace_s=0, uid=pod["metadata"]["uid"])

    def _bind(self, pod: Manifest) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path = self._api.path(POD, name, namespace, "binding")
        uid = pod["metadata"]["uid"]
        if uid not in self._node_of:
            self._node_of[uid] = next(self._nodes)
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node_of[uid]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._api.request("POST", path, body=binding)

    def _write(self, pod: Manifest, fate: Fate) -> None:
        metadata = pod["metadata"]
        old = pod.get("status", {})
        status = status_for(
            pod,
            fate,
            address=old.get("podIP") or self._new_address(),
            host_address=f"192.0.2.{list(ZONES).index(pod['spec']['nodeName']) + 1}",
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        if is_changed(pod, status):
            # With its uid: not the next pod of that name.
            change = {"metadata": {"uid": metadata["uid"]}, "status": status}
            written = self._api.patch(POD, metadata["name"], change, metadata["namespace"], "status")
            self._pods[metadata["uid"]] = written
            # Deleted between our read and our write: the event of that is older than what is known now.
            if "deletionTimestamp" in written["metadata"].keys() - metadata.keys():
                self._settle(written)

    def _fate(self, pod: Manifest) -> Fate:
        decided = [r for r in self._rules if fnmatch.fnmatchcase(pod["metadata"]["name"], r.pattern)]
        if decided and decided[-1].fate is not None:
            return decided[-1].fate
        owners = pod["metadata"].get("ownerReferences", ())
        return Fate.SUCCEEDED if any(owner["kind"] == "Job" for owner in owners) else Fate.READY

    def _new_address(self) -> str:
        number = next(self._addresses)
        return f"10.244.{number // 250}.{number % 250 + 1}"


def _will_pass(refusal: ApiRefusalError) -> bool:
    return refusal.status in _PASSING or refusal.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR


def _version(pod: Manifest) -> int:
    return int(pod["metadata"]["resourceVersion"])


def _make_node(api: KubeApi, name: str, zone: str) -> None:
    """Pods of nodes that do not exist are collected as garbage."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    api.patch(NODE, name, {"status": {"conditions": [ready | times]}}, subresource="status")


@contextmanager
def acting_kubelet(api: KubeApi, namespace: str = "*") -> Iterator[Kubelet]:
    """One that acts in the block."""
    acting = Kubelet(api, namespace)
    acting.start()
    try:
        yield acting
    finally:
        acting.stop()
