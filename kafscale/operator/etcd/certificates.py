"""The certificates of a managed etcd: an authority for each cluster, one for its members, one for its clients.

Pure but for randomness: the existing Secrets and the time determine which Secrets to write. A certificate is renewed
in the last third of its life; etcd and the brokers read the files for each connection, so nothing restarts. The
authority lives longer, and only the operator reads its key.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kafscale.operator.certificates import (
    CA,
    CERTIFICATE,
    KEY,
    KeyPair,
    encoded,
    is_authority,
    is_current,
    issue,
    new_authority,
    read_pair,
)
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.objects import Manifest, manifest

CLIENT_NAME: Final = "kafscale"
"""Common name of brokers, the operator and tools."""

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")

Secrets = Mapping[str, Mapping[str, bytes]]
"""Data of the existing Secrets, by name."""


def secret_names(cluster: str) -> tuple[str, str, str]:
    """Secrets of the authority, the members and the clients."""
    return names.etcd_authority(cluster), names.etcd_members(cluster), names.etcd_clients(cluster)


def plan_secrets(cluster: ClusterSpec, members: int, found: Secrets, now: datetime) -> list[Manifest]:
    """Secrets to write, in order; empty if all are current. `now`: aware."""
    of_authority, of_members, of_clients = secret_names(cluster.name)
    planned = []
    authority = read_pair(found.get(of_authority, {}))
    if authority is None or not is_authority(authority, now):
        authority = new_authority(f"etcd of {cluster.name} in {cluster.namespace}", now)
        planned.append(_secret(cluster, of_authority, authority, authority))
    hosts = member_hosts(cluster, members)
    for name, common_name, wanted in (
        (of_members, etcd_start.MEMBER_NAME, hosts),
        (of_clients, CLIENT_NAME, ()),
    ):
        held = found.get(name, {})
        pair = read_pair(held)
        if (
            pair is None
            or held.get(CA) != authority.certificate
            or not is_current(pair, authority, wanted, now)
        ):
            planned.append(_secret(cluster, name, issue(authority, common_name, wanted, now), authority))
    return planned


def member_hosts(cluster: ClusterSpec, members: int) -> tuple[str, ...]:
    """Hosts of the members: each its own, since etcd looks up a peer's name by its address."""
    service = names.in_namespace(names.etcd(cluster.name), cluster.namespace)
    own = (f"{name}.{service}" for name in etcd_start.member_names(cluster.name, members))
    return (*own, service, *_LOCAL)


def _secret(cluster: ClusterSpec, name: str, pair: KeyPair, authority: KeyPair) -> Manifest:
    data = {CA: authority.certificate, CERTIFICATE: pair.certificate, KEY: pair.key}
    return manifest("v1", "Secret", name, cluster, names.ETCD, type="kubernetes.io/tls", data=encoded(data))
