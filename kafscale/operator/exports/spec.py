"""A KafscaleExport's specification."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafscale.operator.cluster_spec import Free
from kafscale.operator.errors import SpecError
from kafscale.operator.times import Schedule, duration_ms

_TOPIC: Final = "{topic}"


class Engine(StrEnum):
    """The program that exports."""

    SPARK = "Spark"
    PYTHON = "Python"


OWN_OPTIONS: Final = frozenset(
    {
        "--topic", "--topic-pattern", "--topics-by-config", "--table", "--table-namespace", "--dead-letter-table",
        "--catalog", "--catalog-property", "--warehouse", "--to", "--value-format", "--key-format",
        "--partition-by", "--sort-by", "--starting-offsets", "--on-expired", "--transactions", "--continuous",
        "--interval", "--metrics-addr", "--metrics-file", "--data-dir", "--etcd", "--etcd-prefix", "--bucket",
        "--region", "--endpoint", "--path-style", "--namespace",
    }
)  # fmt: skip
"""Options that fields of the specification, or the cluster, determine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics: by names, pattern, and whether only those that are switched on."""

    names: Sequence[str]
    pattern: str | None
    by_config: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretProperty:
    """A property of the catalog with its place in a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The Iceberg catalog."""

    name: str
    type: str
    warehouse: str | None
    properties: Mapping[str, str]
    secret_properties: Sequence[SecretProperty]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rule for tables, without the catalog; see `KafscaleExport`'s `table`."""

    name: str
    dead_letters: str | None
    namespaces: Sequence[str]
    partition_by: str | None
    sort_by: str | None

    def of_topic(self, topic: str, said: str | None = None) -> str:
        """Namespace and name of a topic's table. `said`: what the topic's config kafscale.iceberg.table says."""
        by_rule = self.name.replace(_TOPIC, topic.replace(".", "_"))
        if not said:
            return by_rule
        return said if "." in said else f"{by_rule.rpartition('.')[0]}.{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec:
    """The desired state of one export. Either `schedule` or `interval_sec` is None."""

    name: str
    namespace: str
    cluster: str
    engine: Engine
    image: str
    image_pull_policy: str
    image_pull_secrets: Sequence[str]
    topics: Topics
    schedule: str | None
    active_deadline_sec: int
    interval_sec: float | None
    suspend: bool
    catalog: Catalog
    table: Table
    value_format: str
    key_format: str
    starting_offsets: str
    on_expired: str
    transactions: str
    args: Sequence[str]
    s3_credentials_secret: str | None
    env_secrets: Sequence[str]
    env: Sequence[Free]
    resources: Free
    driver_memory: str
    scratch_size: str
    service_account_name: str | None
    termination_grace_sec: int
    pod_annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Free]
    affinity: Free | None


def export_spec(name: str, namespace: str, spec: Mapping[str, Any]) -> ExportSpec:
    """Parses a resource's `spec`, with defaults filled in. Raises `SpecError`.

    The API server has checked types, limits and what excludes each other.
    """
    schedule = spec.get("schedule")
    if schedule is not None:
        Schedule.parse("schedule", schedule)
    return ExportSpec(
        name=name,
        namespace=namespace,
        cluster=spec["clusterRef"]["name"],
        engine=Engine(spec.get("engine", Engine.SPARK)),
        image=spec["image"],
        image_pull_policy=spec.get("imagePullPolicy", "IfNotPresent"),
        image_pull_secrets=spec.get("imagePullSecrets", ()),
        topics=_topics(spec["topics"]),
        schedule=schedule,
        active_deadline_sec=_seconds("activeDeadline", spec.get("activeDeadline", "1h")),
        interval_sec=_interval(spec),
        suspend=spec.get("suspend", False),
        catalog=_catalog(spec["catalog"]),
        table=_table(spec.get("table", {})),
        value_format=spec.get("valueFormat", "bytes"),
        key_format=spec.get("keyFormat", "bytes"),
        starting_offsets=spec.get("startingOffsets", "earliest"),
        on_expired=spec.get("onExpired", "fail"),
        transactions=spec.get("transactions", "committed"),
        args=_args(spec.get("args", ())),
        s3_credentials_secret=spec.get("s3CredentialsSecret"),
        env_secrets=spec.get("envSecrets", ()),
        env=spec.get("env", ()),
        resources=spec.get("resources", {}),
        driver_memory=spec.get("driverMemory", "2g"),
        scratch_size=spec.get("scratchSize", "20Gi"),
        service_account_name=spec.get("serviceAccountName"),
        termination_grace_sec=spec.get("terminationGracePeriodSeconds", 300),
        pod_annotations=spec.get("podAnnotations", {}),
        node_selector=spec.get("nodeSelector", {}),
        tolerations=spec.get("tolerations", ()),
        affinity=spec.get("affinity"),
    )


def _topics(spec: Mapping[str, Any]) -> Topics:
    pattern = spec.get("pattern")
    if pattern is not None:
        try:
            re.compile(pattern)  # never matched here: a costly one would stop the operator
        except re.error as problem:
            raise SpecError(f"topics.pattern={pattern!r} is not a regular expression: {problem}") from problem
    return Topics(names=spec.get("names", ()), pattern=pattern, by_config=spec.get("byConfig", False))


def _interval(spec: Mapping[str, Any]) -> float | None:
    if "continuous" not in spec:
        return None
    milliseconds = duration_ms("continuous.interval", spec["continuous"].get("interval", "60s"))
    if not 1_000 <= milliseconds <= 86_400_000:
        raise SpecError("continuous.interval is not legal: it must be from 1s to 24h")
    return milliseconds / 1000


def _seconds(field: str, text: str) -> int:
    seconds = duration_ms(field, text) // 1000
    if seconds < 1:
        raise SpecError(f"{field}={text!r} is not legal: it must be a second at least")
    return seconds


def _catalog(spec: Mapping[str, Any]) -> Catalog:
    return Catalog(
        name=spec.get("name", "lake"),
        type=spec["type"],
        warehouse=spec.get("warehouse"),
        properties=spec.get("properties", {}),
        secret_properties=[
            SecretProperty(name=one["property"], secret=one["secret"], key=one["key"])
            for one in spec.get("secretProperties", ())
        ],
    )


def _table(spec: Mapping[str, Any]) -> Table:
    return Table(
        name=spec.get("name", "kafka.{topic}"),
        dead_letters=spec.get("deadLetters"),
        namespaces=spec.get("namespaces", ()),
        partition_by=spec.get("partitionBy"),
        sort_by=spec.get("sortBy"),
    )


def _args(args: Sequence[str]) -> Sequence[str]:
    for number, text in enumerate(args):
        option = text.partition("=")[0]
        if option in OWN_OPTIONS:
            raise SpecError(
                f"args[{number}]={text[:200]!r} is not legal: the fields of the specification determine {option}"
            )
        # A value is part of its option, so that none can be taken for another option.
        if not option.startswith("--"):
            raise SpecError(
                f"args[{number}]={text[:200]!r} is not legal: it must be --option or --option=value"
            )
    return args
