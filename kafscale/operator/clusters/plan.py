"""Plans a cluster's objects from its specification and the existing StatefulSet. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.clusters.owned_objects import is_owned_by, owned
from kafscale.operator.clusters.replicas import ReplicasPlan, owners, plan_replicas
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    USER,
    Kind,
)
from kafscale.operator.manifests import (
    admin_user,
    broker_account,
    broker_listeners,
    broker_services,
    broker_set,
    broker_settings,
    names,
    network_policy,
    scaling,
)
from kafscale.operator.manifests.objects import Manifest

PRUNED: Final = (
    AUTOSCALER,
    SERVICE,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    ROLE_BINDING,
    ROLE,
    SERVICE_ACCOUNT,
    USER,
)
"""Kinds of which objects may become obsolete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Applied in order: `before`, the StatefulSet, `scale`, `after`; then objects outside the plan are deleted.

    `addresses`: how many brokers have one.
    """

    before: Sequence[Manifest]
    broker_set: Manifest
    scale: Manifest | None
    after: Sequence[Manifest]
    replicas: ReplicasPlan
    addresses: int

    def kept(self) -> frozenset[tuple[str, str]]:
        """Kind and name of every object in the plan."""
        objects = (*self.before, self.broker_set, *self.after)
        return frozenset((each["kind"], each["metadata"]["name"]) for each in objects)


def plan_cluster(
    cluster: ClusterSpec, owner: Mapping[str, Any], image: str, live: Mapping[str, Any] | None
) -> ClusterPlan:
    """`owner`: the resource; `image`: default image; `live`: the existing StatefulSet."""
    replicas = plan_replicas(cluster.brokers, live)
    brokers = broker_set.broker_set(cluster, cluster.image or image)
    if replicas.within is not None:
        brokers["spec"]["replicas"] = replicas.within
        if live is not None:  # only over the version that was read: a concurrent scaling must not be lost
            brokers["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    count = addresses(replicas, live)
    before = [
        broker_settings.config_map(cluster),
        *broker_services.within(cluster),
        *broker_services.outside(cluster, count),
        *broker_account.account(cluster, count),
    ]
    admin = admin_user.admin_user(cluster)
    if admin is not None:
        before.append(admin)
    policy = network_policy.broker_policy(cluster)
    if policy is not None:
        before.append(policy)
    after = [scaling.disruption_budget(cluster, names.BROKER, names.brokers(cluster.name))]
    autoscaler = scaling.autoscaler(cluster)
    # Only once the number has another owner: until then the operator has to name it.
    if autoscaler is not None and live is not None and owners(live) - {api_names.FIELD_MANAGER}:
        after.append(autoscaler)
    return ClusterPlan(
        before=[owned(each, owner) for each in before],
        broker_set=owned(brokers, owner),
        scale=None if replicas.scale is None else _number(cluster, replicas.scale),
        after=[owned(each, owner) for each in after],
        replicas=replicas,
        addresses=count,
    )


def check_protocol(cluster: ClusterSpec, live: Mapping[str, Any] | None) -> None:
    """Raises `SpecError` where brokers would change from plaintext to the default protocol without a request for it.

    Their clients, of before there was a protocol to choose, would be locked out.
    """
    if live is None or cluster.security.is_declared:
        return
    (container,) = live["spec"]["template"]["spec"]["containers"]
    variables = {each["name"] for each in container.get("env", ())}
    # Only what says plaintext counts: a template that was changed by hand is put right.
    if variables & {broker_listeners.OLD_ADDRESS, broker_listeners.ALLOW_PLAINTEXT}:
        raise SpecError(
            "security.protocol is not given, and the brokers serve plaintext: set it to PLAINTEXT to go on like "
            "this, or to SASL_SSL, the default of new clusters, once clients are ready for it"
        )


def stale(kind: Kind, found: Iterable[Mapping[str, Any]], plan: ClusterPlan, uid: str) -> list[str]:
    """Names of the cluster's objects that are not in the plan."""
    kept = plan.kept()
    return [
        each["metadata"]["name"]
        for each in found
        if (kind.kind, each["metadata"]["name"]) not in kept and is_owned_by(each, uid)
    ]


def addresses(replicas: ReplicasPlan, live: Mapping[str, Any] | None) -> int:
    """How many brokers need addresses: the desired ones, and those that still hand over."""
    if live is None:
        return replicas.wanted
    there: int = live.get("status", {}).get("replicas", 0)
    return max(replicas.wanted, there)


def _number(cluster: ClusterSpec, replicas: int) -> Manifest:
    """A manifest with the number of brokers and nothing else."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": names.brokers(cluster.name), "namespace": cluster.namespace},
        "spec": {"replicas": replicas},
    }
