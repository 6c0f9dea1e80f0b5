"""The brokers' service account and its rights: to read the broker's node and its external service."""

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
                # Pods that need a token mount it themselves.
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


def reads_nodes(cluster: ClusterSpec) -> bool:
    """True if brokers need their zone or their node's address, and so may `get` nodes."""
    external = cluster.brokers.external
    asks_host = (
        external is not None and external.type is ExternalType.NODE_PORT and not external.host_template
    )
    return cluster.brokers.rack_key is not None or asks_host


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
    return service_account(account_name(cluster), cluster.namespace)


def service_account(name: str, namespace: str) -> dict[str, str]:
    """An account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
