"""Brokers that may read nodes: subjects of one ClusterRoleBinding, `kafscale-node-reader`, that the chart creates.

Nodes are not namespaced, and RBAC has no name prefixes: an operator that created a binding per cluster could change
and delete every ClusterRoleBinding. So there is one, and the operator may change only that. It sets the subjects of
one namespace as the namespace's clusters need them, and leaves other namespaces' subjects alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.errors import KubeRefusedError, SpecError
from kafscale.operator.kube.kinds import CLUSTER, CLUSTER_ROLE_BINDING, Kind
from kafscale.operator.kube.roles import Finds
from kafscale.operator.manifests.broker_account import account_name, reads_nodes, service_account

_ATTEMPTS = 5


class NodeReaderApi(Finds, Protocol):
    """The part of `KubeClient` that is needed here."""

    async def list(self, kind: Kind, namespace: str | None) -> list[dict[str, Any]]:
        """All objects of the namespace."""

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces the version that the manifest names; reason Conflict if it is outdated."""


async def keep_node_readers(kube: NodeReaderApi, namespace: str) -> bool:
    """Updates the binding for the namespace's clusters; returns False without a binding. Raises `KubeError`."""
    clusters = await kube.list(CLUSTER, namespace)
    for attempt in range(_ATTEMPTS):
        binding = await kube.find(CLUSTER_ROLE_BINDING, None, api_names.NODE_READER_ROLE)
        before = () if binding is None else binding.get("subjects") or ()
        after = subjects(before, namespace, clusters)
        if binding is None:
            return False
        if after == list(before):
            break
        try:
            await kube.replace({**binding, "subjects": after})
            break
        except KubeRefusedError as refusal:
            # Another cluster's pass, or another release's operator, wrote meanwhile.
            if refusal.reason != "Conflict" or attempt == _ATTEMPTS - 1:
                raise
    return True


def subjects(
    before: Sequence[Mapping[str, Any]], namespace: str, clusters: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The binding's new subjects. `clusters`: all resources of the namespace. Pure.

    While one of them cannot be parsed, no subject is removed: its brokers may be running.
    """
    wanted: set[str] = set()
    is_sure = True
    for resource in clusters:
        metadata = resource["metadata"]
        if metadata.get("deletionTimestamp"):
            continue
        try:
            cluster = cluster_spec(metadata["name"], namespace, resource["spec"])
        except SpecError:
            is_sure = False
            continue
        if reads_nodes(cluster):
            wanted.add(account_name(cluster))
    kept = [
        each
        for each in before
        if each.get("namespace") != namespace or not is_sure or each.get("name") in wanted
    ]
    there = {each.get("name") for each in kept if each.get("namespace") == namespace}
    return [*kept, *(service_account(name, namespace) for name in sorted(wanted - there))]
