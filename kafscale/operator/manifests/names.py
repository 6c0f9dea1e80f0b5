"""The names of a cluster's objects, and where they are found."""

from typing import Final

KAFKA_PORT: Final = 9092
METRICS_PORT: Final = 9093

BROKER: Final = "broker"
ETCD: Final = "etcd"


def brokers(cluster: str) -> str:
    """The StatefulSet; its pods are this and the broker's id."""
    return f"{cluster}-broker"


def peers(cluster: str) -> str:
    """The headless service under which each broker has a name of its own."""
    return f"{cluster}-brokers"


def bootstrap(cluster: str) -> str:
    """The service that clients begin with."""
    return f"{cluster}-bootstrap"


def external(cluster: str, broker_id: int | str) -> str:
    """The service by which one broker is reached from outside; the id may be a variable's."""
    return f"{cluster}-broker-{broker_id}-external"


def external_bootstrap(cluster: str) -> str:
    """The service that clients from outside begin with."""
    return f"{cluster}-bootstrap-external"


def settings(cluster: str) -> str:
    """The ConfigMap with the brokers' settings."""
    return f"{cluster}-broker-settings"


def etcd(cluster: str) -> str:
    """The StatefulSet of the managed etcd, and its headless service."""
    return f"{cluster}-etcd"


def etcd_authority(cluster: str) -> str:
    """The Secret with the authority that issues the managed etcd's certificates; only the operator reads it."""
    return f"{etcd(cluster)}-authority"


def etcd_members(cluster: str) -> str:
    """The Secret with the certificate of the managed etcd's members."""
    return f"{etcd(cluster)}-members"


def etcd_clients(cluster: str) -> str:
    """The Secret with the certificate that clients show to the managed etcd."""
    return f"{etcd(cluster)}-clients"


def in_namespace(service: str, namespace: str) -> str:
    """A service's host within the Kubernetes cluster, whatever its domain is called."""
    return f"{service}.{namespace}.svc"
