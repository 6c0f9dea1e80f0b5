"""The brokers' NetworkPolicy."""

from collections.abc import Sequence
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, External, Free
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest


def broker_policy(cluster: ClusterSpec) -> Manifest | None:
    """The NetworkPolicy; None if unrestricted. Egress is unrestricted; brokers do not connect to each other."""
    wanted = cluster.brokers.network_policy
    if wanted is None:
        return None
    ingress = [
        _rule(names.KAFKA_PORT, wanted.clients),
        _rule(names.METRICS_PORT, wanted.monitoring),
    ]
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


def _networks(external: External) -> list[Free]:
    """Networks of clients outside, whose addresses are preserved (`externalTrafficPolicy: Local`)."""
    return [{"ipBlock": {"cidr": network}} for network in external.source_ranges]


def _rule(port: int, peers: Sequence[Free]) -> dict[str, Any]:
    """An ingress rule; without peers the port is open."""
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port}]}
    if peers:
        rule["from"] = [dict(peer) for peer in peers]
    return rule
