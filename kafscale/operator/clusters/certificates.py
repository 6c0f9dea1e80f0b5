"""Plans the Secrets with the certificates of a cluster's listeners. Pure but for randomness.

Brokers read their files again when they change, so a renewed certificate restarts nothing. The brokers' certificate
names the hosts that the operator knows: those within the Kubernetes cluster, `hostTemplate` and `bootstrapHost`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kafscale.operator.certificates import (
    CA,
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
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest

_DOMAIN: Final = "cluster.local"
_NAMED_BROKERS: Final = 16
"""External hosts are named in steps of so many brokers, so that scaling rarely needs a new certificate."""


def secret_names(cluster: ClusterSpec) -> list[str]:
    """The Secrets that the plan reads, its own and given ones."""
    found = []
    if makes_certificate(cluster):
        found += [
            names.broker_authority(cluster.name),
            names.broker_certificate(cluster.name),
            names.broker_ca(cluster.name),
        ]
    if cluster.security.takes_certificates:
        found += [names.client_authority(cluster.name), names.client_ca(cluster.name)]
        if cluster.security.client_ca_secret is not None:
            found.append(cluster.security.client_ca_secret)
    return found


def makes_certificate(cluster: ClusterSpec) -> bool:
    """True if the operator makes the brokers' certificate."""
    return cluster.security.uses_tls and cluster.security.certificate_secret is None


def plan_secrets(cluster: ClusterSpec, brokers: int, found: Secrets, now: datetime) -> list[Manifest]:
    """Secrets to write, in order; empty if all are current. `brokers`: how many have an address; `now`: aware."""
    planned = []
    if makes_certificate(cluster):
        planned += _broker_secrets(cluster, broker_hosts(cluster, brokers), found, now)
    if cluster.security.takes_certificates:
        planned += _client_secrets(cluster, found, now)
    return planned


def broker_hosts(cluster: ClusterSpec, brokers: int) -> tuple[str, ...]:
    """Hosts by which clients reach brokers."""
    found = []
    for service in (names.bootstrap(cluster.name), f"*.{names.peers(cluster.name)}"):
        short = f"{service}.{cluster.namespace}"
        found += [short, f"{short}.svc", f"{short}.svc.{_DOMAIN}"]
    external = cluster.brokers.external
    if external is not None:
        if external.bootstrap_host is not None:
            found.append(external.bootstrap_host)
        if external.host_template is not None:
            count = -(-max(1, brokers) // _NAMED_BROKERS) * _NAMED_BROKERS
            found += [external.host_template.replace("{id}", str(number)) for number in range(count)]
    return (*dict.fromkeys(found), *LOCAL_HOSTS)


def _broker_secrets(
    cluster: ClusterSpec, hosts: tuple[str, ...], found: Secrets, now: datetime
) -> list[Manifest]:
    planned = []
    name = names.broker_authority(cluster.name)
    authority, is_new = stored_or_new_authority(
        found.get(name, {}), f"brokers of {cluster.name} in {cluster.namespace}", now
    )
    if is_new:
        planned.append(_pair_secret(cluster, name, authority, authority))
    name = names.broker_ca(cluster.name)
    if found.get(name) != {CA: authority.certificate}:
        planned.append(_secret(cluster, name, {CA: authority.certificate}))
    name = names.broker_certificate(cluster.name)
    if not has_current_pair(found.get(name, {}), authority, hosts, now):
        pair = issue(authority, names.brokers(cluster.name), hosts, now)
        planned.append(_pair_secret(cluster, name, pair, authority))
    return planned


def _client_secrets(cluster: ClusterSpec, found: Secrets, now: datetime) -> list[Manifest]:
    """The authority that signs KafscaleUsers' certificates, and all authorities that brokers accept."""
    planned = []
    name = names.client_authority(cluster.name)
    authority, is_new = stored_or_new_authority(
        found.get(name, {}), f"clients of {cluster.name} in {cluster.namespace}", now
    )
    if is_new:
        planned.append(_pair_secret(cluster, name, authority, authority))
    given = found.get(cluster.security.client_ca_secret or "", {}).get(CA, b"")
    trusted = authority.certificate + given
    name = names.client_ca(cluster.name)
    if found.get(name) != {CA: trusted}:
        planned.append(_secret(cluster, name, {CA: trusted}))
    return planned


def _pair_secret(cluster: ClusterSpec, name: str, pair: KeyPair, authority: KeyPair) -> Manifest:
    return _secret(cluster, name, pair_data(pair, authority), kind="kubernetes.io/tls")


def _secret(cluster: ClusterSpec, name: str, data: Mapping[str, bytes], kind: str = "Opaque") -> Manifest:
    return manifest("v1", "Secret", name, cluster, names.BROKER, type=kind, data=encoded(data))
