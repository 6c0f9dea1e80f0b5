"""The subjects of the one binding by which brokers read nodes."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.operator.api_names import NODE_READER_ROLE
from kafscale.operator.clusters.node_readers import keep_node_readers, subjects
from kafscale.operator.errors import KubeRefusedError
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.operator.manifests.broker_account import service_account

ZONE = {"rack": {"topologyKey": "topology.kubernetes.io/zone"}}
STRANGER = service_account("c-broker", "elsewhere")


def resource(name: str, brokers: Mapping[str, Any] | None = None, *, deleted: bool = False) -> dict[str, Any]:
    spec = {
        "brokers": {"replicas": 3, **(brokers or {})},
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["etcd:2379"]},
    }
    metadata = {"name": name} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    return {"metadata": metadata, "spec": spec}


BROKEN = resource("broken", {"external": {"hostTemplate": "the-same-for-all"}})


def test_cluster_with_zones_becomes_a_subject() -> None:
    found = subjects([STRANGER], "ns", [resource("a", ZONE), resource("b")])
    assert found == [STRANGER, service_account("a-broker", "ns")]


def test_cluster_that_goes_is_no_subject() -> None:
    before = [service_account("a-broker", "ns"), STRANGER]
    assert subjects(before, "ns", [resource("a", ZONE, deleted=True)]) == [STRANGER]
    assert subjects(before, "ns", [resource("a")]) == [STRANGER]


def test_account_of_two_clusters_stays_for_the_other() -> None:
    shared = ZONE | {"serviceAccountName": "shared"}
    before = [service_account("shared", "ns")]
    assert subjects(before, "ns", [resource("a", shared, deleted=True), resource("b", shared)]) == before


def test_unreadable_cluster_keeps_its_subject() -> None:
    before = [service_account("broken-broker", "ns")]
    assert subjects(before, "ns", [BROKEN]) == before
    assert subjects(before, "ns", [BROKEN, resource("a", ZONE)])[1:] == [service_account("a-broker", "ns")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ns", "other"]))))
def test_subjects_of_other_namespaces_stay(names: list[tuple[str, str]]) -> None:
    before = [service_account(name, namespace) for name, namespace in names]
    after = subjects(before, "ns", [resource("a", ZONE)])
    others = [each for each in before if each["namespace"] == "other"]
    assert [each for each in after if each["namespace"] == "other"] == others
    assert {each["name"] for each in after if each["namespace"] == "ns"} == {"a-broker"}
    assert subjects(after, "ns", [resource("a", ZONE)]) == after


class Kube:
    """Holds the binding. `interference`: another writer comes between a read and a write so many times."""

    def __init__(self, *clusters: dict[str, Any], interference: int = 0, has_binding: bool = True) -> None:
        self.clusters = list(clusters)
        self.interference = interference
        self.binding: dict[str, Any] | None = None
        if has_binding:
            self.binding = {"metadata": {"name": NODE_READER_ROLE, "resourceVersion": "1"}}

    async def list(self, kind: Kind, namespace: str | None) -> list[dict[str, Any]]:
        assert (kind, namespace) == (CLUSTER, "ns")
        return self.clusters

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (namespace, name) == (None, NODE_READER_ROLE)
        return copy.deepcopy(self.binding)

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        assert self.binding is not None
        if self.interference:
            self.interference -= 1
            number = int(self.binding["metadata"]["resourceVersion"]) + 1
            metadata = {"name": NODE_READER_ROLE, "resourceVersion": str(number)}
            self.binding = {"metadata": metadata, "subjects": [STRANGER]}
        if manifest["metadata"]["resourceVersion"] != self.binding["metadata"]["resourceVersion"]:
            raise KubeRefusedError(409, "Conflict", "written meanwhile")
        self.binding = dict(manifest)
        return self.binding


async def test_write_of_another_operator_is_not_lost() -> None:
    kube = Kube(resource("a", ZONE), interference=1)
    assert await keep_node_readers(kube, "ns")
    assert kube.binding is not None
    assert kube.binding["subjects"] == [STRANGER, service_account("a-broker", "ns")]


async def test_endless_conflict_is_reported() -> None:
    with pytest.raises(KubeRefusedError):
        await keep_node_readers(Kube(resource("a", ZONE), interference=99), "ns")


async def test_missing_binding_is_reported() -> None:
    assert not await keep_node_readers(Kube(resource("a", ZONE), has_binding=False), "ns")
