"""Network access to the managed etcd, in addition to its certificates."""

from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.objects import Manifest, manifest

OPERATOR: Final = "operator"
"""Component label of the operator's pods."""

# Kubernetes sets this label on every namespace; it cannot be forged.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def etcd_network_policy(cluster: ClusterSpec, operator_namespace: str) -> Manifest:
    """Clients: the cluster's own pods (brokers, export, tools) and the operator. Peers: each other. Metrics: all."""
    members = api_names.selector(cluster.name, names.ETCD)
    own = {api_names.NAME: "kafscale", api_names.INSTANCE: cluster.name}
    operator = {api_names.NAME: "kafscale", api_names.COMPONENT: OPERATOR}
    clients = [
        {"podSelector": {"matchLabels": own}},
        {
            "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: operator_namespace}},
            "podSelector": {"matchLabels": operator},
        },
    ]
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        names.etcd(cluster.name),
        cluster,
        names.ETCD,
        spec={
            "podSelector": {"matchLabels": members},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": clients, "ports": [_port(etcd_start.CLIENT_PORT)]},
                {"from": [{"podSelector": {"matchLabels": members}}], "ports": [_port(etcd_start.PEER_PORT)]},
                {"ports": [_port(etcd_start.METRICS_PORT)]},
            ],
        },
    )


def _port(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}
