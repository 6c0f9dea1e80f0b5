"""Names and hosts of a cluster's objects."""

from typing import Final

KAFKA_PORT: Final = 9092
METRICS_PORT: Final = 9093

EXPORT_METRICS_PORT: Final = 9094

BROKER: Final = "broker"
EXPORT: Final = "export"
ETCD: Final = "etcd"


def brokers(cluster: str) -> str:
    """The StatefulSet; a pod's name is this and the broker's id."""
    return f"{cluster}-broker"


def peers(cluster: str) -> str:
    """The headless service that gives each broker a host name."""
    return f"{cluster}-brokers"


def bootstrap(cluster: str) -> str:
    """The bootstrap service."""
    return f"{cluster}-bootstrap"


def external(cluster: str, broker_id: int | str) -> str:
    """One broker's service for clients outside; the id may be a variable reference."""
    return f"{cluster}-broker-{broker_id}-external"


def external_bootstrap(cluster: str) -> str:
    """The bootstrap service for clients outside."""
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
    """The Secret with the certificate of the managed etcd's clients."""
    return f"{etcd(cluster)}-clients"


def admin(cluster: str, *, has_password: bool) -> str:
    """The KafscaleUser of the administrator, and its Secret: with a password, or with a certificate."""
    return f"{cluster}-admin" if has_password else f"{cluster}-admin-tls"


def broker_authority(cluster: str) -> str:
    """The Secret with the authority that signs the brokers' certificate; only the operator reads it."""
    return f"{cluster}-authority"


def broker_ca(cluster: str) -> str:
    """The Secret with that authority's certificate alone, for clients."""
    return f"{cluster}-ca"


def broker_certificate(cluster: str) -> str:
    """The Secret with the brokers' certificate and key."""
    return f"{cluster}-broker-tls"


def client_ca(cluster: str) -> str:
    """The Secret with the certificates of all authorities of clients, for brokers."""
    return f"{cluster}-client-ca"


def client_authority(cluster: str) -> str:
    """The Secret with the authority that signs clients' certificates; only the operator reads it."""
    return f"{cluster}-client-authority"


def export(name: str) -> str:
    """The CronJob or Deployment of the KafscaleExport of that name; its pods' names begin with this."""
    return f"{name}-export"


def in_namespace(service: str, namespace: str) -> str:
    """A service's host within the Kubernetes cluster, independent of its domain."""
    return f"{service}.{namespace}.svc"
