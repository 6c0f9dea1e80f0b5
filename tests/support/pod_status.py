"""A kubelet's status of a pod, from the pod's fate. No input or output."""

import enum
from typing import Any

Manifest = dict[str, Any]


class Fate(enum.Enum):
    """The fate of a pod's containers."""

    READY = "they run and their readiness probes pass"
    UNREADY = "they run and their readiness probes fail"
    STUCK = "they do not start: the image cannot be pulled"
    CRASHING = "they ended with exit code 1 and wait to be started again"
    SUCCEEDED = "they ended with exit code 0 and stay ended"
    FAILED = "they ended with exit code 1 and stay ended"


_PHASES = {Fate.STUCK: "Pending", Fate.SUCCEEDED: "Succeeded", Fate.FAILED: "Failed"}


def status_for(pod: Manifest, fate: Fate, *, address: str, host_address: str, now: str) -> Manifest:
    """The pod's status for that fate; `now` is RFC 3339.

    Times of what was so already stay, so that a status that is right already comes out as it is. A container's
    restarts are counted when it runs after a crash.
    """
    old = pod.get("status", {})
    containers = [
        _container(container, _of_name(old.get("containerStatuses"), container["name"]), fate, now)
        for container in pod["spec"]["containers"]
    ]
    initial = [
        _container(container, _of_name(old.get("initContainerStatuses"), container["name"]), past, now)
        for container in pod["spec"].get("initContainers", ())
        for past in [_fate_of_initial(container, fate)]
    ]
    status: Manifest = {
        "phase": _PHASES.get(fate, "Running"),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": old.get("startTime") or now,
        "conditions": _conditions(pod, fate, now),
        "containerStatuses": containers,
    }
    if initial:
        status["initContainerStatuses"] = initial
    return status


def is_changed(pod: Manifest, status: Manifest) -> bool:
    """True if the pod's status differs from that."""
    old = pod.get("status", {})
    return any(old.get(key) != value for key, value in status.items())


def is_over(pod: Manifest) -> bool:
    """A terminated pod stays as it is."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _fate_of_initial(container: Manifest, fate: Fate) -> Fate:
    if (
        fate is Fate.STUCK or container.get("restartPolicy") == "Always"
    ):  # a sidecar shares the fate of the others
        return fate
    return Fate.SUCCEEDED


def _conditions(pod: Manifest, fate: Fate, now: str) -> list[Manifest]:
    old = pod.get("status", {}).get("conditions", [])
    runs = fate is Fate.READY
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", ())]
    opened = {each["type"] for each in old if each["status"] == "True"}
    values = {
        "PodReadyToStartContainers": fate not in (Fate.SUCCEEDED, Fate.FAILED),
        "Initialized": fate is not Fate.STUCK,
        "Ready": runs and opened.issuperset(gates),
        "ContainersReady": runs,
        "PodScheduled": True,
    }
    reasons = {Fate.SUCCEEDED: "PodCompleted", Fate.FAILED: "PodFailed"}
    conditions = []
    for kind, value in values.items():
        condition: Manifest = {"type": kind, "status": str(value), "lastProbeTime": None}
        if not value:
            condition["reason"] = reasons.get(fate, "ContainersNotReady")
        before = _of_type(old, kind)
        same = before is not None and before["status"] == condition["status"]
        condition["lastTransitionTime"] = before["lastTransitionTime"] if before and same else now
        conditions.append(condition)
    ours = values.keys()
    return [*conditions, *(each for each in old if each["type"] not in ours)]


def _container(container: Manifest, old: Manifest | None, fate: Fate, now: str) -> Manifest:
    before: Manifest = old or {"restartCount": 0, "state": {}, "lastState": {}}
    was = before["state"]
    starts = fate in (Fate.READY, Fate.UNREADY)
    again = "waiting" in was and bool(before["lastState"]) and starts
    crashed = fate is Fate.CRASHING and "waiting" not in was
    if starts:
        state = was if "running" in was else {"running": {"startedAt": now}}
    elif fate is Fate.STUCK:
        state = {"waiting": {"reason": "ImagePullBackOff", "message": f"cannot pull {container['image']}"}}
    elif fate is Fate.CRASHING:
        message = f"back-off restarting failed container {container['name']}"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    else:
        state = was if "terminated" in was else _ended(was, 0 if fate is Fate.SUCCEEDED else 1, now)
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "" if fate is Fate.STUCK else f"tests/{container['image']}",
        "ready": fate is Fate.READY,
        "started": starts,
        "restartCount": before["restartCount"] + (1 if again else 0),
        "state": state,
        "lastState": _ended(was, 1, now) if crashed else before["lastState"],
    }


def _ended(was: Manifest, code: int, now: str) -> Manifest:
    began = was.get("running", {}).get("startedAt", now)
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now}}


def _of_name(items: list[Manifest] | None, name: str) -> Manifest | None:
    return next((each for each in items or () if each["name"] == name), None)


def _of_type(items: list[Manifest], kind: str) -> Manifest | None:
    return next((each for each in items if each["type"] == kind), None)
