"""Ownership of the number of brokers: the specification or an autoscaler, and the hand-over between them.

The field `spec.replicas` of the brokers' StatefulSet has its own owner. Server-side apply removes a field once its
last owner no longer names it, and the number would fall back to 1: so no owner ever releases it. While the
specification gives the number, the operator applies it as a field manager that applies nothing else. While an
autoscaler decides, the operator does not apply it: the autoscaler's first change takes the field over. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import Brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasPlan:
    """`within`: the number in the StatefulSet's own manifest; None: it names none.

    `scale`: the number to apply as `api_names.SCALE_FIELD_MANAGER`; None: leave it alone.
    `wanted`: the desired number of brokers, as far as it is known.
    """

    within: int | None
    scale: int | None
    wanted: int


def plan_replicas(brokers: Brokers, live: Mapping[str, Any] | None) -> ReplicasPlan:
    """`live`: the existing StatefulSet, or None."""
    if live is None:
        number = _first(brokers)
        # The set is created complete; the number's owner takes it over then.
        return ReplicasPlan(within=number, scale=None, wanted=number)
    is_owned = bool(owners(live) - {api_names.FIELD_MANAGER})
    now: int = live["spec"].get("replicas", 1)
    within = None if is_owned else now
    if brokers.replicas is not None:
        return ReplicasPlan(within=within, scale=brokers.replicas, wanted=brokers.replicas)
    if now == 0:  # autoscalers ignore a set with 0 replicas
        return ReplicasPlan(within=within, scale=_first(brokers), wanted=_first(brokers))
    return ReplicasPlan(within=within, scale=None if is_owned else now, wanted=now)


def owners(live: Mapping[str, Any]) -> frozenset[str]:
    """Field managers that own an object's `spec.replicas`."""
    return frozenset(
        entry["manager"]
        for entry in live["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    )


def _first(brokers: Brokers) -> int:
    if brokers.replicas is not None:
        return brokers.replicas
    if brokers.autoscaling is None:
        raise ValueError("neither replicas nor autoscaling is given")  # the schema refuses such a cluster
    return brokers.autoscaling.min_replicas
