"""Clusters' specifications for tests."""

from typing import Any

from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec


def cluster_with_etcd(name: str, **managed: Any) -> ClusterSpec:
    """One with a managed etcd, in the namespace `ns`."""
    spec = {"brokers": {"replicas": 3}, "s3": {"bucket": "records"}, "etcd": {"managed": managed}}
    return cluster_spec(name, "ns", spec)
