"""JSON Schema of a KafscaleCluster's `spec`."""

from collections.abc import Mapping
from typing import Any, Final

from kafscale.operator.schema import setting_properties
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

_BUCKET_PATTERN: Final = r"^((s3|gs|az)://)?[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]/?$"
_URL_PATTERN: Final = r"^https?://[^/\s]+/?$"
_ENDPOINT_PATTERN: Final = r"^(https?://)?[^/\s,]+:[0-9]{1,5}$"
_SCHEDULE_PATTERN: Final = r"^(@(hourly|daily|weekly|monthly)|\S+( \S+){4})$"

_SECRET_NAME: Final = text("The name of a Secret in the cluster's namespace.", max_length=253)


def _autoscaling() -> dict[str, Any]:
    return section(
        "Brokers come and go with their load. Excludes `replicas`.",
        {
            "minReplicas": integer("The fewest brokers.", 1, 1000, default=3),
            "maxReplicas": integer("The most brokers.", 1, 1000),
            "targetCPUUtilizationPercentage": integer(
                "The share of the requested CPU that is aimed at.", 1, 1000, default=70
            ),
            "behavior": free_form("As in a HorizontalPodAutoscaler."),
        },
        required_names=["maxReplicas"],
        rules=[("self.maxReplicas >= self.minReplicas", "maxReplicas must be at least minReplicas")],
    )


def _external() -> dict[str, Any]:
    return section(
        "Addresses for clients outside of the Kubernetes cluster, one for each broker.",
        {
            "type": choice(
                "How each broker is reached from outside.",
                ["LoadBalancer", "NodePort"],
                default="LoadBalancer",
            ),
            "port": integer("The port of each broker's external address.", 1, 65535, default=9094),
            "hostTemplate": text(
                "The host that clients are told, with {id} for the broker's id: kafka-{id}.example.com. Without it "
                "the address that the load balancer was given, or the node's.",
                max_length=253,
            ),
            "bootstrapHost": text(
                "The host of the service for all brokers, for notes and status.", max_length=253
            ),
            "annotations": free_form("Annotations of the services, such as those for external-dns."),
            "loadBalancerSourceRanges": list_of(text("A network, such as 10.0.0.0/8.", max_length=64)),
        },
        rules=[
            ("!(self.port in [9092, 9093])", "port must not be 9092 or 9093: brokers listen there already")
        ],
    )


def _brokers() -> dict[str, Any]:
    return section(
        "The brokers.",
        {
            "replicas": integer(
                "How many brokers there are; 0 stops them all and keeps everything.", 0, 1000
            ),
            "autoscaling": _autoscaling(),
            "resources": quantities(),
            "rack": section(
                "Brokers tell their zone, so that consumers of the same zone read from them.",
                {"topologyKey": text("The label of nodes.", default="topology.kubernetes.io/zone")},
            ),
            "service": section(
                "The service that clients within the Kubernetes cluster begin with.",
                {"annotations": free_form("Annotations of the service.")},
            ),
            "external": _external(),
            "networkPolicy": section(
                "Makes a NetworkPolicy: who may connect to the brokers. Without it anybody may.",
                {
                    "clients": list_of(
                        free_form("Who may come to the Kafka port, as `from` of a NetworkPolicy.")
                    ),
                    "monitoring": list_of(free_form("Who may come to the metrics, in the same way.")),
                },
            ),
            "terminationGracePeriodSeconds": integer(
                "How long a broker may take to hand over before it is killed.", 15, 3600, default=60
            ),
            "podAnnotations": free_form("Annotations of the pods."),
            "nodeSelector": free_form("As in a pod."),
            "tolerations": list_of(free_form("As in a pod.")),
            "affinity": free_form("As in a pod; without it brokers avoid each other's nodes."),
            "priorityClassName": text("As in a pod.", max_length=253),
            "serviceAccountName": text("The account that the brokers run as.", max_length=253),
        },
        rules=[
            (
                "has(self.replicas) != has(self.autoscaling)",
                "exactly one of replicas and autoscaling must be given",
            )
        ],
    )


def _s3(description: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    return section(
        description,
        {
            "bucket": text(
                "The bucket's name, or s3://name, gs://name or az://container.", pattern=_BUCKET_PATTERN
            ),
            "region": text("The bucket's region.", max_length=64),
            "endpoint": text("The URL of an S3-compatible server.", pattern=_URL_PATTERN),
            "pathStyle": truth("Whether the bucket's name stands in the path instead of the host."),
            "kmsKeyArn": text("The KMS key that objects are encrypted with.", max_length=2048),
            "credentialsSecret": {
                **_SECRET_NAME,
                "description": "A Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and perhaps "
                "AWS_SESSION_TOKEN. Without it the service account's role is used.",
            },
            **extra,
        },
        required_names=["bucket"],
    )


def _objects() -> dict[str, Any]:
    return _s3(
        "The object store that holds the records.",
        {
            "namespace": text(
                "The folder of this cluster in the bucket; clusters that share a bucket have different ones.",
                pattern="^[a-zA-Z0-9-][a-zA-Z0-9._-]{0,248}$",
                default="default",
            ),
            "readReplica": section(
                "A replica of the bucket that is read first.",
                {
                    "bucket": text("Its name.", pattern=_BUCKET_PATTERN),
                    "region": text("Its region.", max_length=64),
                    "endpoint": text("The URL of its server.", pattern=_URL_PATTERN),
                },
                required_names=["bucket"],
            ),
        },
    )


def _etcd() -> dict[str, Any]:
    return section(
        "The metadata store.",
        {
            "endpoints": list_of(text("host:port or its URL.", pattern=_ENDPOINT_PATTERN), min_items=1),
            "prefix": text(
                "What every key starts with; default: /kafscale/ and the namespace in the bucket.",
                pattern="^/[a-zA-Z0-9._/-]{0,248}[a-zA-Z0-9._-]$",
            ),
            "tlsSecret": {
                **_SECRET_NAME,
                "description": "A Secret with ca.crt, and tls.crt and tls.key if asked for.",
            },
            "tlsClientCertificate": truth(
                "Whether tls.crt and tls.key of that Secret are shown to etcd.", default=False
            ),
            "credentialsSecret": {**_SECRET_NAME, "description": "A Secret with username and password."},
            "managed": section(
                "An etcd of three members that the operator runs.",
                {
                    "image": text("The image of etcd 3.5 or newer.", max_length=512),
                    "members": {
                        **integer("How many members; an odd number, which never changes.", 1, 7, default=3),
                        "x-kubernetes-validations": [
                            {
                                "rule": "self == oldSelf",
                                "message": "members cannot change once etcd has formed",
                            }
                        ],
                    },
                    "storageSize": text(
                        "The size of each member's volume.",
                        pattern=r"^[0-9]+(\.[0-9]+)?[KMGT]i?$",
                        default="8Gi",
                    ),
                    "storageClassName": text("The volumes' class.", max_length=253),
                    "quotaBytes": integer(
                        "etcd's space quota in bytes.", 67108864, 17179869184, default=4294967296
                    ),
                    "autoCompactionRetention": duration("How much history is kept.", default="2m"),
                    "defragmentSchedule": text(
                        "When members are defragmented, one by one (cron).",
                        pattern=_SCHEDULE_PATTERN,
                        default="17 3 * * *",
                    ),
                    "resources": quantities(),
                },
                rules=[("self.members % 2 == 1", "members must be odd")],
            ),
        },
        rules=[
            (
                "has(self.endpoints) != has(self.managed)",
                "exactly one of endpoints and managed must be given",
            ),
            (
                "!has(self.managed) || !(has(self.tlsSecret) || has(self.credentialsSecret))",
                "tlsSecret and credentialsSecret are for endpoints: a managed etcd has certificates that the "
                "operator makes, and knows no users",
            ),
        ],
    )


def _backups() -> dict[str, Any]:
    return section(
        "Snapshots of the metadata store.",
        {
            "schedule": text("When (cron, UTC).", pattern=_SCHEDULE_PATTERN, default="*/30 * * * *"),
            "keep": integer("How many are kept at least.", 1, 10000, default=48),
            "keepFor": duration("How long each is kept at least.", default="168h"),
            "suspend": truth("Take none for now.", default=False),
            "s3": _s3(
                "The bucket for the snapshots; better not the one with the records.",
                {
                    "credentialsSecret": {
                        **_SECRET_NAME,
                        "description": "A Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and perhaps "
                        "AWS_SESSION_TOKEN. Without it the operator's own role is used, for buckets that its "
                        "administrator lists (operator.ownRoleBuckets) only.",
                    },
                    "prefix": text(
                        "The folder in the bucket.",
                        pattern="^[a-zA-Z0-9-][a-zA-Z0-9._/-]{0,248}$",
                        default="kafscale-backups",
                    ),
                },
            ),
        },
        required_names=["s3"],
    )


# Two seconds are preStop's.
_STOPS_IN_TIME: Final = (
    "!has(self.config) || !has(self.config.shutdownTimeoutMs) || "
    "self.config.shutdownTimeoutMs <= (self.brokers.terminationGracePeriodSeconds - 2) * 1000",
    "config.shutdownTimeoutMs must be at least 2 seconds shorter than brokers.terminationGracePeriodSeconds, "
    "after which brokers are killed",
)
_WAS_STOPPED: Final = "(has(oldSelf.brokers.replicas) && oldSelf.brokers.replicas == 0)"


def _while_stopped(*names: str) -> list[tuple[str, str]]:
    """Rules for the stores: brokers with the old and the new one at once would lose each other's writes."""
    rules = []
    for name in names:
        field = name.replace("namespace", "__namespace__")  # a word of CEL's own
        is_same = f"has(self.{field}) == has(oldSelf.{field})"
        if name != "etcd.managed":  # only whether it is managed, not how
            is_same += f" && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        message = f"{name} can change only while brokers.replicas is 0: set that first, wait until no broker is left"
        rules.append((f"{_WAS_STOPPED} || ({is_same})", message))
    return rules


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "What the cluster is to be.",
        {
            "image": text("The image of the brokers; without it the operator's own.", max_length=512),
            "imagePullPolicy": choice(
                "As in a container.", ["Always", "IfNotPresent", "Never"], default="IfNotPresent"
            ),
            "imagePullSecrets": list_of(text("The name of a Secret.", max_length=253)),
            "brokers": _brokers(),
            "s3": _objects(),
            "etcd": _etcd(),
            "config": setting_properties.schema(),
            "backups": _backups(),
        },
        required_names=["brokers", "s3", "etcd"],
        rules=[
            _STOPS_IN_TIME,
            *_while_stopped("s3.bucket", "s3.namespace", "etcd.prefix", "etcd.managed"),
        ],
    )
