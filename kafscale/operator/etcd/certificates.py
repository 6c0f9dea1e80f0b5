"""The certificates of a managed etcd: an authority for each cluster, one for its members, one for its clients.

Pure but for randomness: the existing Secrets and the time determine which Secrets to write. A certificate is renewed
in the last third of its life; etcd and the brokers read the files for each connection, so nothing restarts. The
authority lives longer, and only the operator reads its key.
"""

from datetime import datetime
from typing import Final

from kafscale.operator.certificates import (
    LOCAL_HOSTS,
    KeyPair,
    Secrets,
    encoded,
    has_current_pair,
    issue,
    pair_data,
    stored_or_new_authority,
)
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.objects import Manifest, manifest

CLIENT_NAME: Final = "kafscale"
"""Common name of brokers, the operator and tools."""


def secret_names(cluster: str) -> tuple[str, str, str]:
    """Secrets of the authority, the members and the clients."""
    return names.etcd_authority(cluster), names.etcd_members(cluster), names.etcd_clients(cluster)


def plan_secrets(cluster: ClusterSpec, members: int, found: Secrets, now: datetime) -> list[Manifest]:
    """Secrets to write, in order; empty if all are current. `now`: aware."""
    of_authority, of_members, of_clients = secret_names(cluster.name)
    planned = []
    authority, is_new = stored_or_new_authority(
        found.get(of_authority, {}), f"etcd of {cluster.name} in {cluster.namespace}", now
    )
    if is_new:
        planned.append(_secret(cluster, of_authority, authority, authority))
    hosts = member_hosts(cluster, members)
    for name, common_name, wanted in (
        (of_members, etcd_start.MEMBER_NAME, hosts),
        (of_clients, CLIENT_NAME, ()),
    ):
        if not has_current_pair(found.get(name, {}), authority, wanted, now):
            planned.append(_secret(cluster, name, issue(authority, common_name, wanted, now), authority))
    return planned


def member_hosts(cluster: ClusterSpec, members: int) -> tuple[str, ...]:
    """Hosts of the members: each its own, since etcd looks up a peer's name by its address."""
    service = names.in_namespace(names.etcd(cluster.name), cluster.namespace)
    own = (f"{name}.{service}" for name in etcd_start.member_names(cluster.name, members))
    return (*own, service, *LOCAL_HOSTS)


def _secret(cluster: ClusterSpec, name: str, pair: KeyPair, authority: KeyPair) -> Manifest:
    data = encoded(pair_data(pair, authority))
    return manifest("v1", "Secret", name, cluster, names.ETCD, type="kubernetes.io/tls", data=data)
