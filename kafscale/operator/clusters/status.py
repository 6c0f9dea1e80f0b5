"""A cluster's status, derived from the state of its objects. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kafscale.operator import api_names, conditions
from kafscale.operator.cluster_spec import ClusterSpec, ExternalType
from kafscale.operator.conditions import Condition
from kafscale.operator.manifests import names

ACCEPTED: Final = "Accepted"
PROGRESSING: Final = "Progressing"
READY: Final = "Ready"
AUTOSCALING: Final = "Autoscaling"

_SETTLED: Final = "Settled"

_NUMBERS: Final = (
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "selector",
    "bootstrapServers",
    "externalBootstrapServers",
)

HEALTH_SUFFIX: Final = "Healthy"
"""Conditions of other parts with this suffix make a cluster Degraded while they are False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Observed state. `problems`: why pods are not ready; `waits_for`: why brokers are not started yet."""

    wanted: int
    broker_set: Mapping[str, Any] | None
    problems: Sequence[str] = ()
    waits_for: str | None = None
    autoscaler: Mapping[str, Any] | None = None
    external: Mapping[str, Any] | None = None
    before: Iterable[Mapping[str, Any]] = ()
    """Conditions of the stored status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """A status without its conditions' times. `numbers`: replicas and so on, by their names in the status."""

    phase: str
    conditions: Sequence[Condition]
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_map(self, before: Iterable[Mapping[str, Any]], generation: int, now: datetime) -> dict[str, Any]:
        """The status as the resource stores it."""
        return {
            "phase": self.phase,
            "observedGeneration": generation,
            "conditions": conditions.merged(before, self.conditions, generation, now),
            **self.numbers,
        }

    def is_warning(self, condition: Condition) -> bool:
        """True if an event about the condition is a warning; Settled is none."""
        is_trouble = condition.is_so is False and condition.reason != _SETTLED
        return is_trouble and self.phase in ("Failed", "Degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brokers:
    """The StatefulSet's counts."""

    wanted: int
    there: int
    ready: int
    updated: int
    is_observed: bool

    @property
    def are_rolling(self) -> bool:
        return not self.is_observed or self.there != self.wanted or self.updated < self.wanted


def judge(cluster: ClusterSpec, seen: Seen) -> ClusterStatus:
    """Status of a cluster whose objects are applied."""
    brokers = _brokers(seen)
    was_progressing = _was(seen.before, PROGRESSING)
    is_ready = not brokers.are_rolling and brokers.ready >= brokers.wanted
    progresses = brokers.are_rolling or (was_progressing is not False and not is_ready)
    is_unhealthy = "False" in _healths(seen.before).values()
    found = [
        Condition(type=ACCEPTED, is_so=True, reason="Valid", message="The specification is carried out."),
        _progressing(brokers, seen, progresses),
        _ready(brokers, seen, is_ready),
    ]
    if cluster.brokers.autoscaling is not None:
        found.append(_autoscaling(seen.autoscaler))
    return ClusterStatus(
        phase=_phase(brokers, seen, is_ready, progresses, is_unhealthy),
        conditions=found,
        numbers=_numbers(cluster, seen, brokers),
    )


def healths(resource: Mapping[str, Any]) -> dict[str, str]:
    """Other parts' conditions that influence the phase, by type, from a cluster's status."""
    return _healths(resource.get("status", {}).get("conditions", ()))


def _healths(told: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in told if each["type"].endswith(HEALTH_SUFFIX)}


def refused(
    reason: str, message: str, before: Mapping[str, Any], live: Mapping[str, Any] | None
) -> ClusterStatus:
    """Status of a cluster whose specification cannot be carried out. Running brokers keep running.

    So the fields that clients and autoscalers read stay as in `before`; only the number of ready brokers is updated.
    `live`: the StatefulSet, or None.
    """
    kept = {name: before[name] for name in _NUMBERS if name in before}
    if kept:
        kept["readyReplicas"] = (live or {}).get("status", {}).get("readyReplicas", 0)
    return ClusterStatus(
        phase="Failed",
        conditions=[
            Condition(type=ACCEPTED, is_so=False, reason=reason, message=message),
            Condition(type=PROGRESSING, is_so=False, reason=reason, message="Nothing is changed."),
            Condition(type=READY, is_so=False, reason=reason, message=message),
        ],
        numbers=kept,
    )


def deleting(message: str) -> ClusterStatus:
    """Status of a cluster that is being deleted."""
    return ClusterStatus(
        phase="Deleting",
        conditions=[
            Condition(type=PROGRESSING, is_so=True, reason="Deleting", message=message),
            Condition(type=READY, is_so=False, reason="Deleting", message="The cluster is being deleted."),
        ],
    )


def pod_problems(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Problems of pods that need intervention, one line per pod."""
    found = []
    for pod in pods:
        why = _pod_problem(pod)
        if why is not None and not pod["metadata"].get("deletionTimestamp"):
            found.append(f"{pod['metadata']['name']}: {why}")
    return found


def _pod_problem(pod: Mapping[str, Any]) -> str | None:
    status = pod.get("status", {})
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"{each.get('reason', 'Unschedulable')}: {each.get('message', 'no node takes it')}"
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        state = container.get("state", {})
        waiting = state.get("waiting")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            ended = container.get("lastState", {}).get("terminated")
            exit_code = f" (exit code {ended['exitCode']})" if ended else ""
            return f"{waiting['reason']}{exit_code}: {waiting.get('message', '')}".rstrip(": ")
    return None


def _brokers(seen: Seen) -> _Brokers:
    live = seen.broker_set
    if live is None:
        return _Brokers(wanted=seen.wanted, there=0, ready=0, updated=0, is_observed=False)
    status = live.get("status", {})
    is_observed = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    there = status.get("replicas", 0)
    updated = status.get("updatedReplicas", 0)
    # Once all have the same revision, Kubernetes counts none as updated.
    if status.get("currentRevision") == status.get("updateRevision"):
        updated = max(updated, status.get("currentReplicas", 0))
    return _Brokers(
        wanted=seen.wanted,
        there=there,
        ready=status.get("readyReplicas", 0),
        updated=updated,
        is_observed=is_observed,
    )


def _progressing(brokers: _Brokers, seen: Seen, progresses: bool) -> Condition:
    if seen.waits_for is not None:
        return Condition(type=PROGRESSING, is_so=True, reason="Waiting", message=seen.waits_for)
    if not progresses:
        return Condition(type=PROGRESSING, is_so=False, reason=_SETTLED, message="Nothing is being changed.")
    if brokers.there != brokers.wanted:
        message = f"{brokers.there} brokers exist, {brokers.wanted} are wanted."
        return Condition(type=PROGRESSING, is_so=True, reason="Scaling", message=message)
    message = f"{brokers.updated} of {brokers.wanted} brokers are up to date, {brokers.ready} are ready."
    return Condition(type=PROGRESSING, is_so=True, reason="RollingOut", message=message)


def _ready(brokers: _Brokers, seen: Seen, is_ready: bool) -> Condition:
    if is_ready and brokers.wanted == 0:
        message = "No broker is wanted; all data is kept."
        return Condition(type=READY, is_so=False, reason="Stopped", message=message)
    if is_ready:
        message = f"All {brokers.wanted} brokers are ready."
        return Condition(type=READY, is_so=True, reason="BrokersReady", message=message)
    if seen.waits_for is not None:
        return Condition(type=READY, is_so=False, reason="Waiting", message=seen.waits_for)
    message = f"{brokers.ready} of {brokers.wanted} brokers are ready."
    if seen.problems:
        message = " ".join([message, *(f"{problem}." for problem in seen.problems)])
        return Condition(type=READY, is_so=False, reason="PodsFail", message=message)
    return Condition(type=READY, is_so=False, reason="BrokersNotReady", message=message)


def _autoscaling(autoscaler: Mapping[str, Any] | None) -> Condition:
    found = conditions.find((autoscaler or {}).get("status", {}).get("conditions", ()), "ScalingActive")
    if found is None:
        message = "The autoscaler has not reported yet."
        return Condition(type=AUTOSCALING, is_so=None, reason="NotSeen", message=message)
    return Condition(
        type=AUTOSCALING,
        is_so=found["status"] == "True",
        reason=found.get("reason", "Unknown"),
        message=found.get("message", ""),
    )


def _phase(brokers: _Brokers, seen: Seen, is_ready: bool, progresses: bool, is_unhealthy: bool) -> str:
    if seen.waits_for is not None or seen.broker_set is None:
        return "Pending"
    if is_ready:
        if brokers.wanted == 0:
            return "Stopped"
        return "Degraded" if is_unhealthy else "Ready"
    if seen.problems or not progresses:
        return "Degraded"
    return "Progressing"


def _numbers(cluster: ClusterSpec, seen: Seen, brokers: _Brokers) -> dict[str, Any]:
    selector = api_names.selector(cluster.name, names.BROKER)
    host = names.in_namespace(names.bootstrap(cluster.name), cluster.namespace)
    found: dict[str, Any] = {
        "replicas": brokers.wanted,
        "readyReplicas": brokers.ready,
        "updatedReplicas": min(brokers.updated, brokers.wanted),
        "selector": ",".join(f"{name}={value}" for name, value in selector.items()),
        "bootstrapServers": f"{host}:{names.KAFKA_PORT}",
    }
    outside = _external(cluster, seen.external)
    if outside is not None:
        found["externalBootstrapServers"] = outside
    return found


def _external(cluster: ClusterSpec, service: Mapping[str, Any] | None) -> str | None:
    """Bootstrap address for clients outside; None while unknown."""
    external = cluster.brokers.external
    if external is None:
        return None
    if external.type is ExternalType.NODE_PORT:  # brokers move between nodes: only a host name lasts
        ports = (service or {}).get("spec", {}).get("ports") or [{}]
        port = ports[0].get("nodePort")
        return f"{external.bootstrap_host}:{port}" if external.bootstrap_host and port else None
    if external.bootstrap_host is not None:
        return f"{external.bootstrap_host}:{external.port}"
    given = (service or {}).get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host = given[0].get("hostname") or given[0].get("ip")
    return None if host is None else f"{host}:{external.port}"


def _was(before: Iterable[Mapping[str, Any]], kind: str) -> bool | None:
    found = conditions.find(before, kind)
    return None if found is None else found["status"] == "True"
