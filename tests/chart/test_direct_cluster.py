"""Brokers that the chart itself runs are what the operator makes of a KafscaleCluster that says the same."""

from pathlib import Path
from typing import Any

import click
import pytest

from kafscale.commands.cli import main
from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.manifests import (
    broker_account,
    broker_services,
    broker_settings,
    network_policy,
    scaling,
)
from kafscale.operator.manifests.broker_set import broker_set
from kafscale.operator.manifests.names import BROKER, brokers
from kafscale.settings.broker import SETTINGS
from tests.support.helm import HelmError, Manifest, rendered
from tests.support.k8s_install import helm_missing

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

NAME, NAMESPACE, IMAGE = "orders", "streams", "kafscale:0.1.0"
# Which the API server fills in for the operator.
RACK_KEY = "topology.kubernetes.io/zone"

LEAST: dict[str, Any] = {
    "brokers": {"replicas": 3},
    "s3": {"bucket": "records"},
    "etcd": {"endpoints": ["http://etcd:2379"]},
}
EVERYTHING: dict[str, Any] = {
    "image": "registry.example.com/kafscale@sha256:" + "0" * 64,
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry", "other"],
    "brokers": {
        "autoscaling": {
            "minReplicas": 2,
            "maxReplicas": 4,
            "targetCPUUtilizationPercentage": 55,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
        },
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
        "rack": {"topologyKey": "example.com/room"},
        "service": {"annotations": {"example.com/of": "service"}},
        "external": {
            "type": "LoadBalancer",
            "port": 9443,
            "hostTemplate": "kafka-{id}.example.com",
            "bootstrapHost": "kafka.example.com",
            "annotations": {"example.com/of": "external"},
            "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.0.0/16"],
        },
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}, {"podSelector": {}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"of": "prometheus"}}}],
        },
        "terminationGracePeriodSeconds": 120,
        "podAnnotations": {"example.com/of": "pod"},
        "nodeSelector": {"pool": "brokers"},
        "tolerations": [{"key": "brokers", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "important",
        "serviceAccountName": "somebody",
    },
    "s3": {
        "bucket": "s3://records",
        "region": "eu-central-1",
        "endpoint": "https://s3.example.com",
        "pathStyle": False,
        "kmsKeyArn": "arn:aws:kms:eu-central-1:1:key/2",
        "credentialsSecret": "bucket-keys",
        "namespace": "prod",
        "readReplica": {"bucket": "copy", "region": "us-east-1", "endpoint": "https://copy.example.com"},
    },
    "etcd": {
        "endpoints": ["https://etcd-0:2379", "https://etcd-1:2379"],
        "prefix": "/kafscale/prod",
        "tlsSecret": "etcd-tls",
        "tlsClientCertificate": True,
        "credentialsSecret": "etcd-user",
    },
    "config": {
        "flushIntervalMs": 1000000,
        "cacheSize": "2GiB",
        "segmentBytes": 1073741824,
        "autoCreateTopics": False,
        "compressionCodec": "zstd",
        "s3ErrorRateWarn": 0.25,
    },
}


def with_brokers(**parts: Any) -> dict[str, Any]:
    return {**LEAST, "brokers": {"replicas": 2, **parts}}


SPECS: dict[str, dict[str, Any]] = {
    "the least": LEAST,
    "everything": EVERYTHING,
    "none": with_brokers(replicas=0, external={}),
    "autoscaled with defaults": {**LEAST, "brokers": {"autoscaling": {"maxReplicas": 5}}},
    "zones": with_brokers(rack={}),
    "load balancers": with_brokers(external={}),
    "node ports": with_brokers(external={"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
    "node ports with names": with_brokers(
        external={"type": "NodePort", "hostTemplate": "k-{id}.example.com"}
    ),
    "named load balancers": with_brokers(external={"hostTemplate": "k-{id}.example.com"}),
    "closed to nobody": with_brokers(networkPolicy={}, external={}),
    "its own time to stop": {**LEAST, "config": {"shutdownTimeoutMs": 5000}},
    "the most time to stop": {
        **with_brokers(terminationGracePeriodSeconds=120),
        "config": {"shutdownTimeoutMs": 118000},
    },
    "the least time to stop": with_brokers(terminationGracePeriodSeconds=15),
    "plaintext": {**LEAST, "security": {"protocol": "PLAINTEXT"}},
    "plaintext, and another one beside it": {
        **with_brokers(external={"hostTemplate": "k-{id}.example.com"}, networkPolicy={"clients": [{}]}),
        "security": {
            "protocol": "PLAINTEXT",
            "transition": {"protocol": "SASL_SSL"},
            "authorizer": "acl",
            "superUsers": ["User:ANONYMOUS"],
        },
    },
    "the other one, and its port": {
        **LEAST,
        "security": {"protocol": "SASL_SSL", "transition": {"protocol": "PLAINTEXT", "port": 9999}},
    },
    "plaintext outside": {**with_brokers(external={}), "security": {"protocol": "PLAINTEXT"}},
    "plaintext by names": {
        **with_brokers(external={"hostTemplate": "k-{id}.example.com"}),
        "security": {"protocol": "PLAINTEXT", "authorizer": "none"},
    },
    "passwords without encryption": {
        **with_brokers(external={"type": "NodePort"}),
        "security": {"protocol": "SASL_PLAINTEXT", "authorizer": "none", "superUsers": ["User:a", "User:b"]},
    },
    "given Secrets": {
        **with_brokers(external={"hostTemplate": "k-{id}.example.com"}),
        "security": {"certificateSecret": "cert", "adminPasswordSecret": "admin", "metricsTokenSecret": "m"},
    },
    "etcd's certificate only": {**LEAST, "etcd": {**LEAST["etcd"], "tlsSecret": "ca"}},
}


def filled_in(spec: dict[str, Any]) -> dict[str, Any]:
    """As a KafscaleCluster has it: the one default that the operator leaves to the API server."""
    if "rack" not in spec["brokers"]:
        return spec
    return {
        **spec,
        "brokers": {**spec["brokers"], "rack": {"topologyKey": RACK_KEY, **spec["brokers"]["rack"]}},
    }


def node_reader(cluster: ClusterSpec) -> Manifest | None:
    """A binding of its own, where the operator makes a subject of the chart's."""
    if not broker_account.reads_nodes(cluster):
        return None
    name = f"{api_names.NODE_READER_ROLE}:{cluster.namespace}:{cluster.name}"
    return {
        "apiVersion": broker_account.RBAC_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": api_names.labels(cluster.name, BROKER)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": api_names.NODE_READER_ROLE,
        },
        "subjects": [broker_account.service_account(broker_account.account_name(cluster), cluster.namespace)],
    }


def operators(cluster: ClusterSpec, replicas: int | None) -> list[Manifest]:
    """The operator's objects for it."""
    scaled = cluster.brokers.autoscaling
    count = scaled.max_replicas if scaled else replicas or 0
    stateful_set = broker_set(cluster, cluster.image or IMAGE)
    if replicas is not None:
        stateful_set["spec"]["replicas"] = replicas
    found = [
        broker_settings.config_map(cluster),
        stateful_set,
        *broker_services.within(cluster),
        *broker_services.outside(cluster, count),
        scaling.autoscaler(cluster),
        scaling.disruption_budget(cluster, BROKER, brokers(NAME)),
        *broker_account.account(cluster, count),
        node_reader(cluster),
        network_policy.broker_policy(cluster),
    ]
    return [each for each in found if each is not None]


def compared(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """By kind and name, without what tells who made them, and with each role of nodes under one name."""
    found = {}
    for each in manifests:
        each["metadata"]["labels"] = _lasting(each["metadata"]["labels"])
        if each["kind"] == "StatefulSet":
            metadata = each["spec"]["template"]["metadata"]
            metadata["labels"] = _lasting(metadata["labels"])
            variables = each["spec"]["template"]["spec"]["containers"][0]["env"]
            assert [one["name"] for one in variables] == list(dict.fromkeys(one["name"] for one in variables))
        if each["kind"] == "ClusterRoleBinding":
            each["roleRef"]["name"] = api_names.NODE_READER_ROLE
        if not each["metadata"].get("annotations", True):
            del each["metadata"]["annotations"]
        found[each["kind"], each["metadata"]["name"]] = each
    return found


def _lasting(labels: dict[str, str]) -> dict[str, str]:
    made_by = (api_names.MANAGED_BY, "app.kubernetes.io/version", "helm.sh/chart")
    return {name: value for name, value in labels.items() if name not in made_by}


def alike(manifests: list[Manifest]) -> list[Manifest]:
    """Those that both make. Secrets and the administrator have their own tests; the operator keeps them otherwise."""
    return [each for each in manifests if each["kind"] not in ("ClusterRole", "Secret", "Job")]


def direct(folder: Path, spec: dict[str, Any], **parts: Any) -> list[Manifest]:
    values = {
        "crds": {"install": False},
        "operator": {"enabled": False},
        "directCluster": {"enabled": True, "name": NAME, "spec": spec},
        **parts,
    }
    return rendered(folder, values, namespace=NAMESPACE)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_chart_and_the_operator_make_the_same(tmp_path: Path, spec: dict[str, Any]) -> None:
    charts = direct(tmp_path, spec)
    roles = [each for each in charts if each["kind"] == "ClusterRole"]
    cluster = cluster_spec(NAME, NAMESPACE, filled_in(spec))
    wanted = compared(operators(cluster, spec["brokers"].get("replicas")))
    assert compared(alike(charts)) == wanted
    assert [each["rules"] for each in roles] == [
        [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
        for kind, _ in wanted
        if kind == "ClusterRoleBinding"
    ]


def test_image_and_pull_secrets_default_to_the_charts(
    tmp_path: Path,
) -> None:
    image = {"repository": "example.com/k", "tag": "7", "pullPolicy": "Never", "pullSecrets": ["chart"]}
    (found,) = [each for each in direct(tmp_path, LEAST, image=image) if each["kind"] == "StatefulSet"]
    pod = found["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "chart"}]
    assert (pod["containers"][0]["image"], pod["containers"][0]["imagePullPolicy"]) == (
        "example.com/k:7",
        "Never",
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "directCluster.spec.brokers is missing"),
        ({**LEAST, "brokers": {}}, "exactly one of replicas and autoscaling"),
        (with_brokers(autoscaling={"maxReplicas": 3}), "exactly one of replicas and autoscaling"),
        (
            {**LEAST, "brokers": {"autoscaling": {"minReplicas": 4, "maxReplicas": 3}}},
            "maxReplicas (3) must be at least minReplicas (4)",
        ),
        (with_brokers(external={"hostTemplate": "kafka.example.com"}), "must hold {id}"),
        ({**LEAST, "s3": {}}, "/spec/s3': missing property 'bucket'"),
        ({"brokers": {"replicas": 1}, "etcd": LEAST["etcd"]}, "spec.s3 is missing"),
        ({**LEAST, "etcd": {}}, "spec.etcd.endpoints is missing"),
        ({**LEAST, "etcd": {"managed": {}}}, "managed"),
        ({**LEAST, "backups": {}}, "/spec/backups': missing property 's3'"),
        ({**LEAST, "config": {"flushInterval": 5}}, "flushInterval"),
        ({**LEAST, "config": {"flushIntervalMs": -5}}, "flushIntervalMs"),
        ({**LEAST, "config": {"flushIntervalMs": "5"}}, "flushIntervalMs"),
        ({**LEAST, "s3": {"bucket": "Not A Bucket"}}, "bucket"),
        (with_brokers(replica=5), "replica"),
        (with_brokers(external={"port": 9093}), "port must not be 9092 or 9093"),
        (
            {**LEAST, "config": {"shutdownTimeoutMs": 58001}},
            "shorter than brokers.terminationGracePeriodSeconds",
        ),
    ],
)
def test_what_no_cluster_can_be_is_refused_by_name(tmp_path: Path, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError) as refused:
        direct(tmp_path, spec)
    assert words in str(refused.value)


def backup(folder: Path, **parts: Any) -> Manifest:
    backups = {"s3": {"bucket": "backups", "credentialsSecret": "backup-keys"}, **parts}
    (found,) = [
        each for each in direct(folder, {**EVERYTHING, "backups": backups}) if each["kind"] == "CronJob"
    ]
    return found


def test_snapshots_are_taken_on_schedule(tmp_path: Path) -> None:
    made = backup(tmp_path)["spec"]
    assert (made["schedule"], made["timeZone"], made["suspend"]) == ("*/30 * * * *", "Etc/UTC", False)
    pod = made["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["backup", "create", "--keep=48", "--keep-days=7"]
    assert pod["serviceAccountName"] == "somebody"
    variables = {one["name"]: one for one in container["env"]}
    assert variables["KAFSCALE_BACKUP_BUCKET"]["value"] == "backups"
    secrets = {
        name: one["valueFrom"]["secretKeyRef"]["name"]
        for name, one in variables.items()
        if "valueFrom" in one
    }
    assert secrets["KAFSCALE_BACKUP_ACCESS_KEY"] == "backup-keys"
    assert secrets["KAFSCALE_S3_ACCESS_KEY"] == "bucket-keys"
    assert secrets["KAFSCALE_ETCD_PASSWORD"] == "etcd-user"
    assert set(variables) <= {row.variable for row in SETTINGS}
    (create,) = [main.commands["backup"]]
    assert isinstance(create, click.Group)
    assert create.commands["create"].make_context("create", container["args"][2:]).params["keep"] == 48


@pytest.mark.parametrize(
    ("keep_for", "days"), [("1ms", 1), ("24h", 1), ("25h", 2), ("90m", 1), ("30d", 30), ("86401s", 2)]
)
def test_snapshots_are_kept_at_least_as_long_as_asked(tmp_path: Path, keep_for: str, days: int) -> None:
    made = backup(tmp_path, keepFor=keep_for, keep=3, suspend=True, schedule="@hourly")["spec"]
    assert (made["suspend"], made["schedule"]) == (True, "@hourly")
    (container,) = made["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][2:] == ["--keep=3", f"--keep-days={days}"]
