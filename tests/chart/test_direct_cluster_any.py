"""Whatever a specification says, the chart makes of it what the operator makes; texts that look like numbers, too."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.schema.setting_properties import ROWS
from kafscale.settings.rows import SettingRow
from tests.chart.test_direct_cluster import NAME, NAMESPACE, alike, compared, direct, filled_in, operators
from tests.support.k8s_install import helm_missing
from tests.support.nightly import by_day

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

# What YAML 1.1 reads as something else than text, and what has to be escaped in it.
NASTY = ("1e3", "0x10", "null", "true", "no", "12", "1.5", "2001-01-01", "~")
names = st.sampled_from(("plain", "1e3", "null", "true", "no", "12", "a.b-c", "0x10"))
texts = st.sampled_from(("plain", *NASTY, 'a "quoted" one', "it's", "{{ .Values }}", "a: b # c", "- x", "ü"))
texts_by_name = st.dictionaries(st.sampled_from(("example.com/a", "b", "1e3")), texts, max_size=3)
counts = st.integers(0, 3)
ports = st.integers(9095, 65535)


def section(required: dict[str, Any] | None = None, **optional: st.SearchStrategy[Any]) -> Any:
    return st.fixed_dictionaries(required or {}, optional=optional)


externals = section(
    type=st.sampled_from(("LoadBalancer", "NodePort")),
    port=ports,
    hostTemplate=st.sampled_from(("k-{id}.example.com", "{id}", "1e{id}")),
    bootstrapHost=names,
    annotations=texts_by_name,
    loadBalancerSourceRanges=st.lists(st.just("10.0.0.0/8"), min_size=1, max_size=2),
)
peers = st.lists(st.just({"podSelector": {"matchLabels": {"a": "1e3"}}}), max_size=2)
around: dict[str, st.SearchStrategy[Any]] = {
    "resources": st.just({"limits": {"memory": "4Gi", "cpu": 2}}),
    "rack": section(topologyKey=names),
    "service": section(annotations=texts_by_name),
    "external": externals,
    "networkPolicy": section(clients=peers, monitoring=peers),
    "terminationGracePeriodSeconds": st.integers(15, 3600),
    "podAnnotations": texts_by_name,
    "nodeSelector": texts_by_name,
    "tolerations": st.lists(st.just({"key": "a", "value": "1e3"}), max_size=2),
    "affinity": st.just({"nodeAffinity": {}}),
    "priorityClassName": names,
    "serviceAccountName": names,
}
brokers = st.one_of(
    section({"replicas": counts}, **around),
    section(
        {
            "autoscaling": section(
                {"maxReplicas": st.integers(3, 4)},
                minReplicas=st.integers(1, 3),
                targetCPUUtilizationPercentage=st.integers(1, 1000),
                behavior=st.just({"scaleUp": {"stabilizationWindowSeconds": 0}}),
            )
        },
        **around,
    ),
)
buckets = section(
    {"bucket": st.sampled_from(("records", "s3://records", "123", "gs://1e3"))},
    region=names,
    endpoint=st.just("http://minio:9000"),
    pathStyle=st.booleans(),
    kmsKeyArn=texts,
    credentialsSecret=names,
    namespace=st.sampled_from(("default", "1e3", "12")),
    readReplica=section({"bucket": st.sampled_from(("copy", "1e3"))}, region=names),
)
etcds = section(
    {"endpoints": st.lists(st.sampled_from(("etcd:2379", "https://e:1")), min_size=1, max_size=3)},
    prefix=st.just("/kafscale/x"),
    tlsSecret=names,
    tlsClientCertificate=st.booleans(),
    credentialsSecret=names,
)


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], min(schema["maximum"], 2**53))
        case "number":
            return st.sampled_from((0.25, 0.5, 0.000001, 1))
        case ["integer", "string"]:
            return st.sampled_from((1048576, "1MiB", "2GB", 3 * 2**40))
        case _ if "enum" in schema:
            return st.sampled_from(schema["enum"])
    return st.nothing()


def _settings() -> dict[str, st.SearchStrategy[Any]]:
    found = {}
    for name, row in ROWS.items():
        values = _values(dict(row.kind.schema))
        if not values.is_empty:
            found[name] = values.filter(functools.partial(_is_legal, row))
    # Within the shortest time that a broker is given to end.
    found["shutdownTimeoutMs"] = st.integers(0, 13_000)
    return found


def _is_legal(row: SettingRow, value: object) -> bool:
    try:
        row.kind.parse(str(value).lower() if isinstance(value, bool) else str(value))
    except ValueError:
        return False
    return True


specs = section(
    {"brokers": brokers, "s3": buckets, "etcd": etcds},
    image=st.sampled_from(("registry.example.com/kafscale:1", "12", "kafscale@sha256:" + "0" * 64)),
    imagePullPolicy=st.sampled_from(("Always", "Never", "IfNotPresent")),
    imagePullSecrets=st.lists(names, min_size=1, max_size=2),
    config=st.fixed_dictionaries({}, optional=_settings()),
    security=st.one_of(
        section({"protocol": st.just("PLAINTEXT")}),
        section(
            {
                "protocol": st.sampled_from(("SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT")),
                "transition": section(
                    {"protocol": st.sampled_from(("SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"))},
                    port=st.sampled_from((9096, 10096)),
                ),
            },
            authorizer=st.sampled_from(("acl", "none")),
            superUsers=st.just(["User:ANONYMOUS"]),
            adminPasswordSecret=names,
        ),
        section(
            protocol=st.sampled_from(("SASL_SSL", "SASL_PLAINTEXT")),
            certificateSecret=names,
            authorizer=st.sampled_from(("acl", "none")),
            superUsers=st.lists(st.sampled_from(("User:a", "User:CN=b,O=c")), max_size=2),
            adminPasswordSecret=names,
            metricsTokenSecret=names,
        ),
    ),
)


@settings(max_examples=by_day(10, by_night=250), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(specs)
def test_the_chart_and_the_operator_make_the_same_of_anything(spec: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        charts = direct(Path(folder), spec)
    cluster = cluster_spec(NAME, NAMESPACE, filled_in(spec))
    wanted = compared(operators(cluster, spec["brokers"].get("replicas")))
    assert compared(alike(charts)) == wanted
