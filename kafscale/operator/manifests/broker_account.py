"""The brokers' service account, and what a broker may ask Kubernetes: its own node, and its own service outside."""

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, ExternalType
from kafscale.operator.manifests import names
from kafscale.operator.manifests.broker_set import asks_address
from kafscale.operator.manifests.objects import Manifest, manifest

_RBAC = "rbac.authorization.k8s.io"
RBAC_VERSION = f"{_RBAC}/v1"


def account(cluster: ClusterSpec, broker_count: int) -> list[Manifest]:
    """The account, unless the specification names another, and its rights within the namespace."""
    found: list[Manifest] = []
    if cluster.brokers.service_account_name is None:
        found.append(
            manifest(
                "v1",
                "ServiceAccount",
                account_name(cluster),
                cluster,
                names.BROKER,
                # A pod asks for its token where it needs one.
                automountServiceAccountToken=False,
            )
        )
    external = cluster.brokers.external
    if external is not None and asks_address(external) and broker_count > 0:
        found += [_role(cluster, broker_count), _binding(cluster)]
    return found


def account_name(cluster: ClusterSpec) -> str:
    """The account that the brokers run as."""
    return cluster.brokers.service_account_name or names.brokers(cluster.name)


def node_reader(cluster: ClusterSpec) -> Manifest | None:
    """The binding by which brokers may read nodes; None where they need not.

    Nodes belong to no namespace, and so the binding belongs to none: nothing removes it with the cluster but its
    operator. The role is the chart's (`api_names.NODE_READER_ROLE`).
    """
    external = cluster.brokers.external
    asks_host = (
        external is not None and external.type is ExternalType.NODE_PORT and not external.host_template
    )
    if cluster.brokers.rack_key is None and not asks_host:
        return None
    return {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": node_reader_name(cluster.namespace, cluster.name),
            "labels": api_names.labels(cluster.name, names.BROKER),
        },
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": api_names.NODE_READER_ROLE},
        "subjects": [_subject(cluster)],
    }


def node_reader_name(namespace: str, cluster: str) -> str:
    """With what no name of a namespace or a cluster has in it, so that no two are the same."""
    return f"{api_names.NODE_READER_ROLE}:{namespace}:{cluster}"


def _role(cluster: ClusterSpec, broker_count: int) -> Manifest:
    services = [names.external(cluster.name, broker_id) for broker_id in range(broker_count)]
    return manifest(
        RBAC_VERSION,
        "Role",
        names.brokers(cluster.name),
        cluster,
        names.BROKER,
        rules=[{"apiGroups": [""], "resources": ["services"], "resourceNames": services, "verbs": ["get"]}],
    )


def _binding(cluster: ClusterSpec) -> Manifest:
    return manifest(
        RBAC_VERSION,
        "RoleBinding",
        names.brokers(cluster.name),
        cluster,
        names.BROKER,
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": names.brokers(cluster.name)},
        subjects=[_subject(cluster)],
    )


def _subject(cluster: ClusterSpec) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": account_name(cluster), "namespace": cluster.namespace}
