"""What a member of the managed etcd is told when it starts without data: form a cluster, join one, or do not start.

etcd looks at this only while a member's volume is empty. A member that was part of a cluster and lost its volume must
not start as if nothing had happened: it has forgotten what it acknowledged and for whom it voted, and most of a
cluster's volumes lost would come back as an empty cluster under the same names. So once a cluster has formed, its
members are told a list in which none of them is: with data they start, without data they refuse to.

It is a ConfigMap because pods read it when their containers start: changing it restarts nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.errors import SpecError
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest

CLIENT_PORT: Final = 2379
PEER_PORT: Final = 2380
METRICS_PORT: Final = 2381

MEMBER_NAME: Final = "etcd-member"
"""The common name of the members' certificate: with another one nobody is taken for a peer."""

NO_DATA: Final = "couldn't find local name"
"""What etcd says (3.4 to 3.6) when it refuses to start for that reason."""

_NOBODY: Final = f"a-formed-cluster-takes-no-member-without-data=https://127.0.0.1:{PEER_PORT}"

INITIAL_CLUSTER: Final = "initialCluster"
INITIAL_CLUSTER_STATE: Final = "initialClusterState"
INITIAL_CLUSTER_TOKEN: Final = "initialClusterToken"


class StartPhase(StrEnum):
    """How far the cluster has come."""

    FORMING = "Forming"
    FORMED = "Formed"
    JOINING = "Joining"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdStart:
    """What is kept of an etcd cluster. `members`: how many it was formed with, which does not change.

    `token`: makes its ids differ from those of another cluster under the same names. `cluster_id`: etcd's, in hex,
    of the cluster that formed; None while none has. `joining`: the member that may start without data, and no other.
    """

    phase: StartPhase
    members: int
    token: str
    cluster_id: str | None = None
    joining: str | None = None


def name_of(cluster: str) -> str:
    """The ConfigMap's."""
    return f"{names.etcd(cluster)}-start"


def member_names(cluster: str, members: int) -> list[str]:
    """The pods, which are the members' names in etcd, too."""
    return [f"{names.etcd(cluster)}-{member}" for member in range(members)]


def peer_url(member: str, cluster: str, namespace: str) -> str:
    """Where a member is for the others."""
    return f"https://{member}.{names.in_namespace(names.etcd(cluster), namespace)}:{PEER_PORT}"


def client_url(member: str, cluster: str, namespace: str) -> str:
    """Where a member is for clients."""
    return f"https://{member}.{names.in_namespace(names.etcd(cluster), namespace)}:{CLIENT_PORT}"


def start_map(cluster: ClusterSpec, start: EtcdStart) -> Manifest:
    """The ConfigMap."""
    data = {
        INITIAL_CLUSTER: _initial_cluster(cluster, start),
        INITIAL_CLUSTER_STATE: "new" if start.phase is StartPhase.FORMING else "existing",
        INITIAL_CLUSTER_TOKEN: start.token,
        "phase": start.phase.value,
        "members": str(start.members),
    }
    if start.joining is not None:
        data["joining"] = start.joining
    if start.cluster_id is not None:
        data["clusterId"] = start.cluster_id
    return manifest("v1", "ConfigMap", name_of(cluster.name), cluster, names.ETCD, data=data)


def _initial_cluster(cluster: ClusterSpec, start: EtcdStart) -> str:
    if start.phase is StartPhase.FORMED:
        return _NOBODY
    listed = []
    for member in member_names(cluster.name, start.members):
        # A member that joins compares the addresses with the cluster's own list, and looks only for its own name.
        is_let_in = start.phase is StartPhase.FORMING or member == start.joining
        name = member if is_let_in else f"not-{member}"
        listed.append(f"{name}={peer_url(member, cluster.name, cluster.namespace)}")
    return ",".join(listed)


def read_start(name: str, data: Mapping[str, str]) -> EtcdStart:
    """Out of the ConfigMap's data. Raises `SpecError` for what nobody wrote here."""
    try:
        return EtcdStart(
            phase=StartPhase(data["phase"]),
            members=int(data["members"]),
            token=data[INITIAL_CLUSTER_TOKEN],
            cluster_id=data.get("clusterId"),
            joining=data.get("joining"),
        )
    except (KeyError, ValueError) as problem:
        raise SpecError(
            f"the ConfigMap {name} was changed by somebody: {problem!r} in {dict(data)}"
        ) from problem
