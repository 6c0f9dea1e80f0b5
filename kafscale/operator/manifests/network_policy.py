"""The NetworkPolicies of brokers and of the managed etcd."""

from collections.abc import Sequence
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, External, Free
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.objects import Manifest, manifest

OPERATOR: Final = "operator"
"""Component label of the operator's pods."""

# Kubernetes sets this label on every namespace; it cannot be forged.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def broker_policy(cluster: ClusterSpec) -> Manifest | None:
    """The NetworkPolicy; None if unrestricted. Egress is unrestricted; brokers do not connect to each other."""
    wanted = cluster.brokers.network_policy
    if wanted is None:
        return None
    ingress = [
        _rule(names.KAFKA_PORT, wanted.clients),
        _rule(names.METRICS_PORT, wanted.monitoring),
    ]
    ingress += [_rule(each.port, wanted.clients) for each in cluster.security.further]
    external = cluster.brokers.external
    if external is not None:
        ingress.append(_rule(external.port, _networks(external)))
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        names.brokers(cluster.name),
        cluster,
        names.BROKER,
        spec={
            "podSelector": {"matchLabels": api_names.selector(cluster.name, names.BROKER)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    )


def etcd_network_policy(cluster: ClusterSpec, operator_namespace: str) -> Manifest:
    """Access to the managed etcd, in addition to its certificates.

    Clients: the cluster's own pods (brokers, export, tools) and the operator. Peers: each other. Metrics: all.
    """
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


def _networks(external: External) -> list[Free]:
    """Networks of clients outside, whose addresses are preserved (`externalTrafficPolicy: Local`)."""
    return [{"ipBlock": {"cidr": network}} for network in external.source_ranges]


def _rule(port: int, peers: Sequence[Free]) -> dict[str, Any]:
    """An ingress rule; without peers the port is open."""
    rule: dict[str, Any] = {"ports": [_port(port)]}
    if peers:
        rule["from"] = [dict(peer) for peer in peers]
    return rule


def _port(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}
