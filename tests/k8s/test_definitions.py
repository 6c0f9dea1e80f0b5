"""The custom resource definitions in a real API server: what they take, fill in, and refuse."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafscale.operator import api_names
from kafscale.operator.schema.definitions import all_definitions
from tests.support.kube_api import ApiRefusalError, Kind, KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_definitions import defined
from tests.support.kube_exports import SPEC as EXPORT_SPEC

CLUSTER = Kind(api_names.API_VERSION, api_names.CLUSTER)
TOPIC = Kind(api_names.API_VERSION, api_names.TOPIC)
USER = Kind(api_names.API_VERSION, api_names.USER)
EXPORT = Kind(api_names.API_VERSION, api_names.EXPORT)

MINIMAL: dict[str, Any] = {
    "brokers": {"replicas": 3},
    "s3": {"bucket": "records"},
    "etcd": {"endpoints": ["http://etcd:2379"]},
}


@pytest.fixture(scope="module", autouse=True)
def definitions(plane: ControlPlane) -> Iterator[None]:
    with defined(plane.admin, *all_definitions()):
        yield


def cluster(**parts: Any) -> dict[str, Any]:
    spec = {**MINIMAL, **parts}
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.CLUSTER,
        "metadata": {"name": "c"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def topic(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.TOPIC,
        "metadata": {"name": "t"},
        "spec": {"clusterRef": {"name": "c"}, **parts},
    }


def refusal(api: KubeApi, manifest: dict[str, Any]) -> str:
    with pytest.raises(ApiRefusalError) as refused:
        api.create(manifest)
    assert refused.value.status == 422
    return refused.value.message


def test_a_cluster_with_the_least_is_filled_in(api: KubeApi) -> None:
    made = api.create(cluster(etcd={"managed": {}}, backups={"s3": {"bucket": "backups"}}))
    spec = made["spec"]
    assert spec["brokers"]["terminationGracePeriodSeconds"] == 60
    assert spec["s3"]["namespace"] == "default"
    assert spec["etcd"]["managed"]["members"] == 3
    assert spec["backups"]["keep"] == 48
    assert spec["backups"]["s3"]["prefix"] == "kafscale-backups"


def test_settings_are_typed(api: KubeApi) -> None:
    config = {
        "flushIntervalMs": 250,
        "cacheSize": "2GiB",
        "autoCreateTopics": False,
        "compressionCodec": "lz4",
    }
    assert api.create(cluster(config=config))["spec"]["config"] == config


def test_a_broker_may_take_almost_as_long_as_its_pod_to_stop(api: KubeApi) -> None:
    brokers = {"replicas": 1, "terminationGracePeriodSeconds": 90, "external": {"port": 9091}}
    assert api.create(cluster(brokers=brokers, config={"shutdownTimeoutMs": 88000}))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"brokers": {}}, "exactly one of replicas and autoscaling must be given"),
        ({"brokers": {"replicas": 3, "autoscaling": {"maxReplicas": 5}}}, "exactly one of replicas"),
        ({"brokers": {"autoscaling": {"minReplicas": 5, "maxReplicas": 3}}}, "maxReplicas must be at least"),
        ({"brokers": {"replicas": -1}}, "spec.brokers.replicas"),
        ({"s3": {}}, "spec.s3.bucket"),
        ({"s3": {"bucket": "Not A Bucket"}}, "spec.s3.bucket"),
        ({"s3": None}, "spec.s3"),
        ({"etcd": {}}, "exactly one of endpoints and managed must be given"),
        ({"etcd": {"managed": {"members": 4}}}, "members must be odd"),
        ({"etcd": {"endpoints": []}}, "spec.etcd.endpoints"),
        ({"config": {"flushIntervalMs": -1}}, "spec.config.flushIntervalMs"),
        ({"config": {"compressionCodec": "gzip"}}, "spec.config.compressionCodec"),
        ({"config": {"cacheSize": "lots"}}, "spec.config.cacheSize"),
        ({"config": {"shutdownTimeoutMs": 58001}}, "shorter than brokers.terminationGracePeriodSeconds"),
        ({"brokers": {"replicas": 1, "external": {"port": 9092}}}, "brokers listen there already"),
        ({"security": {"protocol": "TLS"}}, "spec.security.protocol"),
        ({"security": {"protocol": "PLAINTEXT", "authorizer": "acl"}}, "not for the protocol PLAINTEXT"),
        (
            {"security": {"protocol": "PLAINTEXT", "adminPasswordSecret": "s"}},
            "not for the protocol PLAINTEXT",
        ),
        ({"security": {"protocol": "SASL_PLAINTEXT", "mutualTls": {}}}, "mutualTls is for the protocols"),
        ({"security": {"mutualTls": {"port": 9092}}}, "brokers listen there already"),
        ({"security": {"superUsers": ["ops"]}}, "spec.security.superUsers[0]"),
        ({"security": {"protocol": "SSL", "transition": {}}}, "spec.security.transition.protocol"),
        ({"security": {"transition": {"protocol": "SASL_SSL"}}}, "transition needs protocol"),
        (
            {"security": {"protocol": "SSL", "transition": {"protocol": "SASL_SSL", "port": 9093}}},
            "brokers listen there already",
        ),
        ({"backups": {}}, "spec.backups.s3"),
        ({"backups": {"s3": {"bucket": "backups"}, "schedule": "now and then"}}, "spec.backups.schedule"),
    ],
)
def test_what_no_cluster_can_be_is_refused_by_name(api: KubeApi, parts: dict[str, Any], words: str) -> None:
    assert words in refusal(api, cluster(**parts))


def test_protocol_stays_open_until_it_is_chosen(api: KubeApi) -> None:
    made = api.create(cluster(security={"mutualTls": {}, "superUsers": ["User:ops", "User:CN=a,O=b"]}))
    assert made["spec"]["security"] == {
        "mutualTls": {"port": 9095},
        "superUsers": ["User:ops", "User:CN=a,O=b"],
    }


def test_transition_from_plaintext_may_have_an_authorizer(api: KubeApi) -> None:
    wanted = {
        "protocol": "PLAINTEXT",
        "transition": {"protocol": "SASL_SSL"},
        "authorizer": "acl",
        "superUsers": ["User:ANONYMOUS"],
    }
    made = api.create(cluster(security=wanted))
    assert made["spec"]["security"]["transition"] == {"protocol": "SASL_SSL", "port": 9096}


STOPPED = {"brokers": {"replicas": 0}}
MANAGED: dict[str, Any] = {"managed": {}, "endpoints": None}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"s3": {"bucket": "recods"}}, "s3.bucket can change only while brokers.replicas is 0"),
        ({"s3": {"namespace": "other"}}, "s3.namespace can change only while"),
        ({"etcd": {"prefix": "/other"}}, "etcd.prefix can change only while"),
        ({"etcd": MANAGED}, "etcd.managed can change only while"),
        ({"s3": {"bucket": "recods"}} | STOPPED, "s3.bucket can change only while"),
    ],
)
def test_storage_location_changes_only_while_stopped(api: KubeApi, after: dict[str, Any], words: str) -> None:
    api.create(cluster())
    with pytest.raises(ApiRefusalError, match=words):
        api.patch(CLUSTER, "c", {"spec": after})
    api.patch(CLUSTER, "c", {"spec": STOPPED})
    api.patch(CLUSTER, "c", {"spec": after})


@pytest.mark.parametrize(
    "after",
    [
        {"s3": {"endpoint": "https://s3.example.com"}},
        {"etcd": {"endpoints": ["http://other:2379"]}},
        {"brokers": {"replicas": None, "autoscaling": {"maxReplicas": 5}}},
    ],
)
def test_what_leads_to_the_same_place_changes_at_any_time(api: KubeApi, after: dict[str, Any]) -> None:
    api.create(cluster())
    api.patch(CLUSTER, "c", {"spec": after})


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [("a" * 43, True), ("a" * 44, False), ("orders.eu", False), ("2nd", False), ("o-2", True), ("o", True)],
)
def test_a_clusters_name_is_one_that_services_can_have(api: KubeApi, name: str, is_legal: bool) -> None:
    """Found: the brokers of a cluster with a long name were never started, and nothing said why."""
    wanted = cluster()
    wanted["metadata"]["name"] = name
    if is_legal:
        api.create(wanted)
    else:
        assert "services and pods are named after it" in refusal(api, wanted)


def test_a_topic_with_the_least_is_filled_in(api: KubeApi) -> None:
    spec = api.create(topic(retention="24h", compression="zstd", config={"segment.bytes": 1048576}))["spec"]
    assert (spec["partitions"], spec["deletionPolicy"]) == (1, "Delete")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"partitions": 0}, "spec.partitions"),
        ({"retention": "a while"}, "spec.retention"),
        ({"compression": "rar"}, "spec.compression"),
        ({"retention": "1h", "config": {"retention.ms": 5}}, "say the same: give one"),
        ({"clusterRef": {}}, "spec.clusterRef.name"),
        ({"deletionPolicy": "Perhaps"}, "spec.deletionPolicy"),
        ({"topicName": "a b"}, "spec.topicName"),
    ],
)
def test_what_no_topic_can_be_is_refused_by_name(api: KubeApi, parts: dict[str, Any], words: str) -> None:
    assert words in refusal(api, topic(**parts))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"partitions": 6}, {"partitions": 3}, "partitions cannot be taken away"),
        ({"topicName": "a"}, {"topicName": "b"}, "topicName cannot change"),
        ({}, {"topicName": "b"}, "topicName cannot be given or taken away"),
        ({"topicName": "a"}, {"topicName": None}, "topicName cannot be given or taken away"),
        ({}, {"clusterRef": {"name": "other"}}, "clusterRef cannot change"),
    ],
)
def test_what_a_topic_cannot_become_is_refused(
    api: KubeApi, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    api.create(topic(**before))
    with pytest.raises(ApiRefusalError, match=words):
        api.patch(TOPIC, "t", {"spec": after})


def test_the_scale_of_a_cluster_is_its_brokers(api: KubeApi) -> None:
    api.create(cluster())
    api.scale(CLUSTER, "c", 5)
    found = api.get(CLUSTER, "c")
    assert found["spec"]["brokers"]["replicas"] == 5


def user(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.USER,
        "metadata": {"name": "u"},
        "spec": {"clusterRef": {"name": "c"}, **parts},
    }


def acl(**parts: Any) -> dict[str, Any]:
    rule = {"resource": {"type": "topic", "name": "t"}, "operations": ["Read"], **parts}
    return {"authorization": {"acls": [rule]}}


def authentication(kind: str, **parts: Any) -> dict[str, Any]:
    return {"authentication": {"type": kind, **parts}}


GIVEN = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def test_user_with_the_least_is_filled_in(api: KubeApi) -> None:
    parts = {**acl(), **authentication("scram-sha-512", password=GIVEN), "quotas": {"producerByteRate": 5}}
    spec = api.create(user(**parts))["spec"]
    (rule,) = spec["authorization"]["acls"]
    assert spec["authorization"]["type"] == "simple"
    assert (rule["type"], rule["host"], rule["resource"]["patternType"]) == ("allow", "*", "literal")


@pytest.mark.parametrize(
    "parts",
    [
        {},
        acl(resource={"type": "cluster"}, operations=["Create", "Describe"], host="10.0.0.0/8"),
        acl(resource={"type": "group", "name": "g-", "patternType": "prefix"}, type="deny"),
        acl(resource={"type": "transactionalId", "name": "*"}, operations=["Write"], host="fd00::1"),
        {**authentication("tls-external"), "userName": "CN=u,O=Example"},
        {"quotas": {"controllerMutationRate": 0.5}},
    ],
)
def test_legal_user_is_taken(api: KubeApi, parts: dict[str, Any]) -> None:
    api.create(user(**parts))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"clusterRef": {}}, "spec.clusterRef.name"),
        (authentication("password"), "spec.authentication.type"),
        (authentication("tls", password=GIVEN), "password is for scram-sha-512 and scram-sha-256"),
        ({**authentication("tls"), "userName": "CN=x"}, "userName is not for tls"),
        ({"userName": "a\nb"}, "spec.userName"),
        (acl(operations=["Fetch"]), "spec.authorization.acls[0].operations"),
        (acl(operations=[]), "spec.authorization.acls[0].operations"),
        (acl(resource={"type": "topic"}), "resource.name must be given"),
        (acl(resource={"type": "cluster", "name": "c"}), "except for the type cluster"),
        (acl(resource={"type": "cluster", "patternType": "prefix"}), "has the patternType literal"),
        (acl(host="somewhere"), "spec.authorization.acls[0].host"),
        (acl(type="perhaps"), "spec.authorization.acls[0].type"),
        ({"authorization": {"acls": [acl()["authorization"]["acls"][0]] * 501}}, "500"),
        ({"quotas": {"producerByteRate": 0}}, "spec.quotas.producerByteRate"),
        ({"quotas": {"controllerMutationRate": -1}}, "spec.quotas.controllerMutationRate"),
    ],
)
def test_illegal_user_is_refused_by_name(api: KubeApi, parts: dict[str, Any], words: str) -> None:
    assert words in refusal(api, user(**parts))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"userName": "a"}, {"userName": "b"}, "userName cannot change"),
        ({}, {"userName": "b"}, "userName cannot be given or taken away"),
        ({}, {"clusterRef": {"name": "other"}}, "clusterRef cannot change"),
        (authentication("scram-sha-512"), authentication("tls"), "authentication cannot change"),
        (authentication("tls"), {"authentication": None}, "authentication cannot change"),
    ],
)
def test_user_cannot_become_another(
    api: KubeApi, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    api.create(user(**before))
    with pytest.raises(ApiRefusalError, match=words):
        api.patch(USER, "u", {"spec": after})


def test_user_may_change_its_mechanism(api: KubeApi) -> None:
    api.create(user(**authentication("scram-sha-256")))
    api.patch(USER, "u", {"spec": authentication("scram-sha-512")})
    api.patch(USER, "u", {"spec": {"authentication": None}})


def an_export(**parts: Any) -> dict[str, Any]:
    spec = {**EXPORT_SPEC, **parts}
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.EXPORT,
        "metadata": {"name": "e"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


REST = {"type": "rest", "properties": {"uri": "https://catalog/"}}
PYTHON: dict[str, Any] = {"engine": "Python", "catalog": REST}


def test_export_with_the_least_is_filled_in(api: KubeApi) -> None:
    spec = api.create(an_export())["spec"]
    assert (spec["engine"], spec["suspend"], spec["valueFormat"]) == ("Spark", False, "bytes")
    assert (spec["catalog"]["name"], spec["topics"]["byConfig"]) == ("lake", False)
    continuous: dict[str, Any] = {"schedule": None, "continuous": {}}
    made = api.create({**an_export(**continuous), "metadata": {"name": "f"}})
    assert made["spec"]["continuous"] == {"interval": "60s"}


@pytest.mark.parametrize(
    "parts",
    [
        PYTHON,
        {**PYTHON, "topics": {"byConfig": True, "pattern": "a.*"}},
        {"topics": {"names": ["a", "b"], "pattern": "c.*"}, "table": {"name": "a.{topic}"}},
        {"args": ["--compact"], "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": 1}}},
    ],
)
def test_legal_export_is_taken(api: KubeApi, parts: dict[str, Any]) -> None:
    api.create(an_export(**parts))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"schedule": None}, "exactly one of schedule and continuous must be given"),
        ({"continuous": {}}, "exactly one of schedule and continuous must be given"),
        ({"topics": {}}, "names, pattern or byConfig must say which topics"),
        ({"topics": {"byConfig": False}}, "names, pattern or byConfig must say which topics"),
        ({"topics": {"names": []}}, "spec.topics.names"),
        ({"engine": "Flink"}, "spec.engine"),
        ({**PYTHON, "topics": {"names": ["a", "b"]}}, "the engine Python takes one name"),
        ({**PYTHON, "topics": {"pattern": "a"}}, "takes a pattern with byConfig only"),
        ({**PYTHON, "topics": {"names": ["a"], "pattern": "a", "byConfig": True}}, "a name or a pattern"),
        ({**PYTHON, "valueFormat": "json"}, "decodes bytes and string only"),
        ({**PYTHON, "catalog": {"type": "glue"}}, "a catalog of the type rest or sql"),
        ({**PYTHON, "catalog": {"type": "rest"}}, "needs the property uri"),
        ({**PYTHON, "catalog": {"type": "sql"}}, "needs a warehouse"),
        ({"table": {"name": "events"}}, "spec.table.name"),
        ({"schedule": "hourly"}, "spec.schedule"),
    ],
)
def test_illegal_export_is_refused_by_name(api: KubeApi, parts: dict[str, Any], words: str) -> None:
    assert words in refusal(api, an_export(**parts))


def test_export_names_have_a_limit(api: KubeApi) -> None:
    assert "at most 43" in refusal(api, {**an_export(), "metadata": {"name": "e" * 44}})
    api.create({**an_export(), "metadata": {"name": "e" * 43}})


def test_export_cannot_change_its_cluster(api: KubeApi) -> None:
    api.create(an_export())
    with pytest.raises(ApiRefusalError, match="clusterRef cannot change"):
        api.patch(EXPORT, "e", {"spec": {"clusterRef": {"name": "other"}}})
