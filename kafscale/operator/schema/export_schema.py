"""JSON Schema of a KafscaleExport's `spec`."""

from typing import Any, Final

from kafscale.cluster.iceberg_configs import IcebergKeyFormat, IcebergValueFormat, OnExpired, TransactionMode
from kafscale.operator.schema.schema_parts import (
    choice,
    duration,
    free_form,
    integer,
    list_of,
    quantities,
    section,
    text,
    truth,
)

ENGINES: Final = ("Spark", "Python")
MAX_TOPICS: Final = 200
MAX_ARGS: Final = 64

_NAME: Final = "^[A-Za-z0-9_-]+$"
_TABLE: Final = r"^[A-Za-z0-9_{}-]+(\.[A-Za-z0-9_{}-]+)+$"
_NAMESPACE: Final = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SCHEDULE: Final = r"^(@(hourly|daily|weekly|monthly)|\S+( \S+){4})$"


def _topics() -> dict[str, Any]:
    return section(
        "Which topics are exported.",
        {
            "names": {
                **list_of(text("A topic's name.", pattern="^[a-zA-Z0-9._-]{1,249}$"), min_items=1),
                "maxItems": MAX_TOPICS,
            },
            "pattern": text(
                "A regular expression: topics whose whole name matches, found before each run.",
                max_length=512,
            ),
            "byConfig": truth(
                "Topics whose config kafscale.iceberg.enable is true, each as its kafscale.iceberg.* configs say "
                "(docs/topic-configs.md). With names or a pattern: of these only.",
                default=False,
            ),
        },
        rules=[
            (
                "has(self.names) || has(self.pattern) || self.byConfig",
                "names, pattern or byConfig must say which topics",
            )
        ],
    )


def _catalog() -> dict[str, Any]:
    return section(
        "The Iceberg catalog (docs/lake-export.md).",
        {
            "name": text(
                "Its name, the first part of a table's full name.",
                pattern=_NAME,
                max_length=64,
                default="lake",
            ),
            "type": text(
                "Its type: rest, jdbc, glue, hive, nessie and others for Spark; rest or sql for Python.",
                pattern="^[A-Za-z][A-Za-z0-9_.]{0,254}$",
            ),
            "warehouse": text(
                "Where it keeps tables, such as s3://bucket/path, or a REST catalog's word for it.",
                max_length=1024,
            ),
            "properties": {
                "type": "object",
                "description": "Its properties, as Iceberg's or pyiceberg's documentation names them, such as uri.",
                "additionalProperties": {"type": "string", "maxLength": 4096},
                "maxProperties": 64,
            },
            "secretProperties": {
                **list_of(
                    section(
                        "Properties whose values are in Secrets, such as credential.",
                        {
                            "property": text("The property.", pattern="^[A-Za-z0-9._-]+$", max_length=253),
                            "secret": text("The Secret's name.", max_length=253),
                            "key": text("The key in its data.", max_length=253),
                        },
                        required_names=["property", "secret", "key"],
                    )
                ),
                "maxItems": 16,
            },
        },
        required_names=["type"],
    )


def _tables() -> dict[str, Any]:
    return section(
        "The tables.",
        {
            "name": text(
                "Namespace and name; {topic} stands for the topic's name, with _ for dots.",
                pattern=_TABLE,
                max_length=512,
                default="kafka.{topic}",
            ),
            "deadLetters": text(
                "The table for what does not decode, likewise; default: the table's name and _dead_letters.",
                pattern=_TABLE,
                max_length=512,
            ),
            "namespaces": {
                **list_of(
                    text(
                        "With byConfig: a namespace besides that of `name` in which topics may have their tables.",
                        pattern=_NAMESPACE,
                        max_length=253,
                    )
                ),
                "maxItems": 32,
            },
            "partitionBy": text("How a new table is partitioned, such as days(timestamp).", max_length=1024),
            "sortBy": text("How a new table is sorted. Not for Python.", max_length=1024),
        },
    )


def _pod() -> dict[str, dict[str, Any]]:
    return {
        "s3CredentialsSecret": text(
            "A Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally AWS_SESSION_TOKEN for the "
            "records' bucket; default: the cluster's.",
            max_length=253,
        ),
        "envSecrets": {
            **list_of(text("A Secret whose keys become environment variables.", max_length=253)),
            "maxItems": 16,
        },
        "env": {
            **list_of(free_form("A further environment variable, as in a container.")),
            "maxItems": 64,
        },
        "resources": quantities(),
        "driverMemory": text(
            "Memory of Spark's JVM. Not for Python.", pattern="^[0-9]{1,6}[mg]$", default="2g"
        ),
        "scratchSize": text(
            "Size of the folder for temporary files.", pattern=r"^[0-9]+(\.[0-9]+)?[KMGT]i?$", default="20Gi"
        ),
        "serviceAccountName": text(
            "The pods' service account, for the cloud's access control; default: the namespace's own. The pods get "
            "no token for Kubernetes.",
            max_length=253,
        ),
        "terminationGracePeriodSeconds": integer(
            "Time to finish the commit in progress, in seconds.", 1, 3600, default=300
        ),
        "podAnnotations": free_form("Annotations of the pods."),
        "nodeSelector": free_form("As in a pod."),
        "tolerations": list_of(free_form("As in a pod.")),
        "affinity": free_form("As in a pod."),
    }


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "The export of topics of a cluster into Iceberg tables.",
        {
            "clusterRef": section(
                "The KafscaleCluster, in the export's namespace.",
                {"name": text("Its name.", max_length=253)},
                required_names=["name"],
            ),
            "engine": choice(
                "Spark: the Spark job, for topics of any size. Python: kafscale export, in one process.",
                ENGINES,
                default="Spark",
            ),
            "image": text(
                "The image: that of deploy/spark/Dockerfile for Spark, one with kafscale[iceberg] for Python.",
                max_length=512,
            ),
            "imagePullPolicy": choice(
                "As in a container.", ["Always", "IfNotPresent", "Never"], default="IfNotPresent"
            ),
            "imagePullSecrets": list_of(text("The name of a Secret.", max_length=253)),
            "topics": _topics(),
            "schedule": text(
                "When to export what is new (cron, UTC). Excludes `continuous`.",
                pattern=_SCHEDULE,
                max_length=100,
            ),
            "activeDeadline": duration("With a schedule: a run that takes longer is ended.", default="1h"),
            "continuous": section(
                "Export all the time. Excludes `schedule`.",
                {"interval": duration("The pause between two rounds.", default="60s")},
            ),
            "suspend": truth("Suspends the export.", default=False),
            "catalog": _catalog(),
            "table": _tables(),
            "valueFormat": choice(
                "The format of values.", [one.value for one in IcebergValueFormat], default="bytes"
            ),
            "keyFormat": choice(
                "The format of keys.", [one.value for one in IcebergKeyFormat], default="bytes"
            ),
            "startingOffsets": text(
                "Where the first export of a topic begins: earliest, latest, or a time.",
                max_length=64,
                default="earliest",
            ),
            "onExpired": choice(
                "If records expired before they were exported: fail, or record the gap.",
                [one.value for one in OnExpired],
                default="fail",
            ),
            "transactions": choice(
                "committed: what is committed, partition by partition. atomic: commits of one cut of all topics, in "
                "which each transaction is whole or not at all.",
                [one.value for one in TransactionMode],
                default="committed",
            ),
            "args": {
                **list_of(
                    text(
                        "A further option of the export, such as --compact (docs/lake-export.md).",
                        max_length=4096,
                    )
                ),
                "maxItems": MAX_ARGS,
            },
            **_pod(),
        },
        required_names=["clusterRef", "image", "topics", "catalog"],
        rules=[
            (
                "has(self.schedule) != has(self.continuous)",
                "exactly one of schedule and continuous must be given",
            ),
            (
                "self.clusterRef.name == oldSelf.clusterRef.name",
                "clusterRef cannot change: make another export",
            ),
            (
                "self.engine != 'Python' || !has(self.topics.names) || size(self.topics.names) == 1",
                "the engine Python takes one name; use byConfig for several topics",
            ),
            (
                "self.engine != 'Python' || self.topics.byConfig || !has(self.topics.pattern)",
                "the engine Python takes a pattern with byConfig only",
            ),
            (
                "self.engine != 'Python' || !has(self.topics.names) || !has(self.topics.pattern)",
                "the engine Python takes a name or a pattern, not both",
            ),
            (
                "self.engine != 'Python' || self.valueFormat in ['bytes', 'string']",
                "the engine Python decodes bytes and string only",
            ),
            (
                "self.engine != 'Python' || self.catalog.type in ['rest', 'sql']",
                "the engine Python needs a catalog of the type rest or sql",
            ),
            (
                "self.engine != 'Python' || self.catalog.type != 'rest' || "
                "(has(self.catalog.properties) && 'uri' in self.catalog.properties)",
                "a catalog of the type rest needs the property uri",
            ),
            (
                "self.engine != 'Python' || self.catalog.type == 'rest' || has(self.catalog.warehouse)",
                "a catalog of the type sql needs a warehouse",
            ),
        ],
    )
