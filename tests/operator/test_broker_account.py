"""A broker may ask Kubernetes for what it has to know, and for nothing else."""

from typing import Any

import pytest

from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.manifests import broker_account, broker_set
from kafscale.operator.pods.place import questions

ZONE = {"rack": {"topologyKey": "topology.kubernetes.io/zone"}}
BALANCED = {"external": {"type": "LoadBalancer"}}
NAMED = {"external": {"type": "LoadBalancer", "hostTemplate": "kafka-{id}.example.com"}}
NODE_PORT = {"external": {"type": "NodePort"}}
NAMED_NODE_PORT = {"external": {"type": "NodePort", "hostTemplate": "node-{id}.example.com"}}


def cluster(**brokers: Any) -> ClusterSpec:
    spec = {
        "brokers": {"replicas": 3} | brokers,
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["etcd:2379"]},
    }
    return cluster_spec("events", "shop", spec)


def kinds(wanted: ClusterSpec, broker_count: int = 3) -> list[str]:
    found = [one["kind"] for one in broker_account.account(wanted, broker_count)]
    return found + (["ClusterRoleBinding"] if broker_account.reads_nodes(wanted) else [])


def broker_environment(wanted: ClusterSpec) -> dict[str, str]:
    """The account of the broker with id 1, as far as it says what to ask."""
    container = broker_set.broker_set(wanted, "kafscale:1")["spec"]["template"]["spec"]["containers"][0]
    fields = {
        "KAFSCALE_BROKER_ID": "1",
        "POD_NAME": "events-broker-1",
        "POD_NAMESPACE": "shop",
        "NODE_NAME": "node-2",
    }
    found: dict[str, str] = {}
    for variable in container["env"]:
        value = fields[variable["name"]] if "valueFrom" in variable else variable["value"]
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[variable["name"]] = value
    return found


@pytest.mark.parametrize(
    ("brokers", "rights"),
    [
        ({}, []),
        (NAMED, []),
        (ZONE, ["ClusterRoleBinding"]),
        (BALANCED, ["Role", "RoleBinding"]),
        (NAMED_NODE_PORT, ["Role", "RoleBinding"]),
        (NODE_PORT, ["Role", "RoleBinding", "ClusterRoleBinding"]),
        (ZONE | BALANCED, ["Role", "RoleBinding", "ClusterRoleBinding"]),
    ],
)
def test_it_has_the_rights_for_its_questions(brokers: dict[str, Any], rights: list[str]) -> None:
    wanted = cluster(**brokers)
    assert kinds(wanted) == ["ServiceAccount", *rights]
    asked = questions(broker_environment(wanted))
    # The service is read where there is a Role; the node where there is a binding to the nodes' reader.
    assert (asked is not None and asked.service is not None) == ("Role" in rights)
    reads_nodes = asked is not None and (
        asked.rack_label is not None or (asked.asks_host and "NodePort" in str(brokers))
    )
    assert reads_nodes == ("ClusterRoleBinding" in rights)


def test_it_reads_the_brokers_services_and_no_others() -> None:
    account, role, binding = broker_account.account(cluster(**BALANCED), 2)
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["services"],
            "resourceNames": ["events-broker-0-external", "events-broker-1-external"],
            "verbs": ["get"],
        }
    ]
    asked = questions(broker_environment(cluster(**BALANCED)))
    assert asked is not None and asked.service in role["rules"][0]["resourceNames"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "events-broker", "namespace": "shop"}]
    assert account["metadata"]["name"] == "events-broker"
    assert account["automountServiceAccountToken"] is False


def test_no_brokers_have_no_services_to_read() -> None:
    """A rule without names would be a rule for every service."""
    assert kinds(cluster(**BALANCED), 0) == ["ServiceAccount"]


def test_rights_go_to_the_account_that_the_specification_names() -> None:
    wanted = cluster(serviceAccountName="with-a-cloud-role", **ZONE, **BALANCED)
    assert kinds(wanted) == ["Role", "RoleBinding", "ClusterRoleBinding"]
    binding = broker_account.account(wanted, 3)[-1]
    assert [subject["name"] for subject in binding["subjects"]] == ["with-a-cloud-role"]
