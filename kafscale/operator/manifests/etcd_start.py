"""Instructions to a managed etcd's member that starts without data: form a cluster, join one, or refuse to start.

etcd reads them only while a member's volume is empty. A member that lost its volume must not simply start: it has
forgotten its acknowledgements and votes, and a cluster that lost most volumes would return as an empty cluster under
the same names. So once a cluster has formed, the initial cluster contains none of its members: with data they start,
without data they refuse.

A ConfigMap, because containers read it when they start: changing it restarts nothing.
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
"""Common name of the members' certificate, which peers require."""

NO_DATA: Final = "couldn't find local name"
"""Message of etcd 3.4 to 3.6 when it refuses to start for that reason."""

_NO_MEMBER: Final = f"a-formed-cluster-takes-no-member-without-data=https://127.0.0.1:{PEER_PORT}"

INITIAL_CLUSTER: Final = "initialCluster"
INITIAL_CLUSTER_STATE: Final = "initialClusterState"
INITIAL_CLUSTER_TOKEN: Final = "initialClusterToken"


class StartPhase(StrEnum):
    """Progress of the cluster's formation."""

    FORMING = "Forming"
    FORMED = "Formed"
    JOINING = "Joining"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdStart:
    """Stored state of an etcd cluster. `members`: number at formation, which does not change.

    `token`: makes its ids differ from those of another cluster under the same names. `cluster_id`: etcd's, in hex,
    of the cluster that formed; None while none has. `joining`: the member that may start without data, and no other.
    """

    phase: StartPhase
    members: int
    token: str
    cluster_id: str | None = None
    joining: str | None = None


def name_of(cluster: str) -> str:
    """Name of the ConfigMap."""
    return f"{names.etcd(cluster)}-start"


def member_names(cluster: str, members: int) -> list[str]:
    """Names of the pods, which are also the members' names in etcd."""
    return [f"{names.etcd(cluster)}-{member}" for member in range(members)]


def peer_url(member: str, cluster: str, namespace: str) -> str:
    """URL for peers."""
    return f"https://{member}.{names.in_namespace(names.etcd(cluster), namespace)}:{PEER_PORT}"


def client_url(member: str, cluster: str, namespace: str) -> str:
    """URL for clients."""
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
        return _NO_MEMBER
    listed = []
    for member in member_names(cluster.name, start.members):
        # A joining member compares the addresses with etcd's list, and looks up only its own name.
        is_let_in = start.phase is StartPhase.FORMING or member == start.joining
        name = member if is_let_in else f"not-{member}"
        listed.append(f"{name}={peer_url(member, cluster.name, cluster.namespace)}")
    return ",".join(listed)


def read_start(name: str, data: Mapping[str, str]) -> EtcdStart:
    """Parses the ConfigMap's data. Raises `SpecError` if the operator did not write it."""
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
            f"the ConfigMap {name} was changed by another writer: {problem!r} in {dict(data)}"
        ) from problem
