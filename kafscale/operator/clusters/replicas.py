"""Who says how many brokers there are: the specification or an autoscaler, and how one takes over from the other.

The field `spec.replicas` of the brokers' StatefulSet has an owner of its own. Server-side apply removes a field
that its last owner names no more, and the number would fall back to 1: so nobody ever gives it up. While the
number is given, the operator applies it under a name that applies nothing else. While an autoscaler decides, the
operator just does not apply it: the first change by the autoscaler takes the field over. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import Brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasPlan:
    """`within`: the number that the StatefulSet's own manifest must name, None: it names none.

    `scale`: the number to be applied by `api_names.SCALE_FIELD_MANAGER`, None: it is not to be touched.
    `wanted`: how many brokers there are to be, as far as it is known now.
    """

    within: int | None
    scale: int | None
    wanted: int


def plan_replicas(brokers: Brokers, live: Mapping[str, Any] | None) -> ReplicasPlan:
    """`live`: the StatefulSet as it is, None: there is none yet."""
    if live is None:
        number = _first(brokers)
        # A StatefulSet is whole from its first moment; whoever owns the number then takes it over.
        return ReplicasPlan(within=number, scale=None, wanted=number)
    is_owned = bool(owners(live) - {api_names.FIELD_MANAGER})
    now: int = live["spec"].get("replicas", 1)
    within = None if is_owned else now
    if brokers.replicas is not None:
        return ReplicasPlan(within=within, scale=brokers.replicas, wanted=brokers.replicas)
    if now == 0:  # an autoscaler leaves alone what stands at nothing
        return ReplicasPlan(within=within, scale=_first(brokers), wanted=_first(brokers))
    return ReplicasPlan(within=within, scale=None if is_owned else now, wanted=now)


def owners(live: Mapping[str, Any]) -> frozenset[str]:
    """The managers that own an object's `spec.replicas`."""
    return frozenset(
        entry["manager"]
        for entry in live["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    )


def _first(brokers: Brokers) -> int:
    if brokers.replicas is not None:
        return brokers.replicas
    if brokers.autoscaling is None:
        raise ValueError("neither replicas nor autoscaling is given")  # the API refuses such a cluster
    return brokers.autoscaling.min_replicas
