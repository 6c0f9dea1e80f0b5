"""JSON Schema of a KafscaleCluster's `spec`."""

from collections.abc import Mapping
from typing import Any, Final

from kafscale.operator.schema import security_schema, setting_properties
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
        "Scales the number of brokers with their load. Excludes `replicas`.",
        {
            "minReplicas": integer("Minimum number of brokers.", 1, 1000, default=3),
            "maxReplicas": integer("Maximum number of brokers.", 1, 1000),
            "targetCPUUtilizationPercentage": integer(
                "Target CPU utilization, in percent of the requested CPU.", 1, 1000, default=70
            ),
            "behavior": free_form("As in a HorizontalPodAutoscaler."),
        },
        required_names=["maxReplicas"],
        rules=[("self.maxReplicas >= self.minReplicas", "maxReplicas must be at least minReplicas")],
    )


def _external() -> dict[str, Any]:
    return section(
        "External addresses, one per broker, for clients outside the Kubernetes cluster.",
        {
            "type": choice(
                "Type of the external services.",
                ["LoadBalancer", "NodePort"],
                default="LoadBalancer",
            ),
            "port": integer("Port of each broker's external address.", 1, 65535, default=9094),
            "hostTemplate": text(
                "Advertised host, with {id} for the broker's id: kafka-{id}.example.com. Without it "
                "the address that the load balancer was given, or the node's.",
                max_length=253,
            ),
            "bootstrapHost": text(
                "Host of the external bootstrap service, for notes and status.", max_length=253
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
            "replicas": integer("Number of brokers; 0 stops all and keeps all data.", 0, 1000),
            "autoscaling": _autoscaling(),
            "resources": quantities(),
            "rack": section(
                "Sets the brokers' racks from their nodes' zones, so that consumers read in their own zone.",
                {"topologyKey": text("Node label with the zone.", default="topology.kubernetes.io/zone")},
            ),
            "service": section(
                "The bootstrap service within the Kubernetes cluster.",
                {"annotations": free_form("Annotations of the service.")},
            ),
            "external": _external(),
            "networkPolicy": section(
                "Creates a NetworkPolicy for the brokers. Without it, connections are unrestricted.",
                {
                    "clients": list_of(
                        free_form(
                            "Peers that may connect to the Kafka port, as in `from` of a NetworkPolicy."
                        )
                    ),
                    "monitoring": list_of(free_form("Peers that may connect to the metrics port, likewise.")),
                },
            ),
            "terminationGracePeriodSeconds": integer(
                "Time that a broker has to hand over before it is killed, in seconds.", 15, 3600, default=60
            ),
            "podAnnotations": free_form("Annotations of the pods."),
            "nodeSelector": free_form("As in a pod."),
            "tolerations": list_of(free_form("As in a pod.")),
            "affinity": free_form("As in a pod; default: brokers avoid sharing a node."),
            "priorityClassName": text("As in a pod.", max_length=253),
            "serviceAccountName": text("The brokers' service account.", max_length=253),
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
            "pathStyle": truth("Use path-style requests: the bucket's name in the path instead of the host."),
            "kmsKeyArn": text("The KMS key that encrypts objects.", max_length=2048),
            "credentialsSecret": {
                **_SECRET_NAME,
                "description": "A Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally "
                "AWS_SESSION_TOKEN. Without it the service account's role is used.",
            },
            **extra,
        },
        required_names=["bucket"],
    )


def _objects() -> dict[str, Any]:
    return _s3(
        "The object store of the records.",
        {
            "namespace": text(
                "This cluster's folder in the bucket; must differ between clusters that share a bucket.",
                pattern="^[a-zA-Z0-9-][a-zA-Z0-9._-]{0,248}$",
                default="default",
            ),
            "readReplica": section(
                "A replica of the bucket that is read first.",
                {
                    "bucket": text("The bucket's name.", pattern=_BUCKET_PATTERN),
                    "region": text("The bucket's region.", max_length=64),
                    "endpoint": text("The URL of an S3-compatible server.", pattern=_URL_PATTERN),
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
                "Prefix of every key; default: /kafscale/ and s3.namespace.",
                pattern="^/[a-zA-Z0-9._/-]{0,248}[a-zA-Z0-9._-]$",
            ),
            "tlsSecret": {
                **_SECRET_NAME,
                "description": "A Secret with ca.crt, and with tls.crt and tls.key if tlsClientCertificate is true.",
            },
            "tlsClientCertificate": truth(
                "Present tls.crt and tls.key of that Secret to etcd.", default=False
            ),
            "credentialsSecret": {**_SECRET_NAME, "description": "A Secret with username and password."},
            "managed": section(
                "An etcd of three members that the operator runs.",
                {
                    "image": text("The image of etcd 3.5 or newer.", max_length=512),
                    "members": {
                        **integer("Number of members; odd, and fixed once created.", 1, 7, default=3),
                        "x-kubernetes-validations": [
                            {
                                "rule": "self == oldSelf",
                                "message": "members cannot change once etcd has formed",
                            }
                        ],
                    },
                    "storageSize": text(
                        "Size of each member's volume.",
                        pattern=r"^[0-9]+(\.[0-9]+)?[KMGT]i?$",
                        default="8Gi",
                    ),
                    "storageClassName": text("Storage class of the volumes.", max_length=253),
                    "quotaBytes": integer(
                        "etcd's space quota in bytes.", 67108864, 17179869184, default=4294967296
                    ),
                    "autoCompactionRetention": duration("How much history is retained.", default="2m"),
                    "defragmentSchedule": text(
                        "Schedule of defragmentation, one member at a time (cron).",
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
            "schedule": text("Schedule (cron, UTC).", pattern=_SCHEDULE_PATTERN, default="*/30 * * * *"),
            "keep": integer("Minimum number of snapshots kept.", 1, 10000, default=48),
            "keepFor": duration("Minimum age before a snapshot expires.", default="168h"),
            "suspend": truth("Suspends snapshots.", default=False),
            "s3": _s3(
                "The bucket of the snapshots; preferably not the one of the records.",
                {
                    "credentialsSecret": {
                        **_SECRET_NAME,
                        "description": "A Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally "
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
        field = name.replace("namespace", "__namespace__")  # a reserved word of CEL
        is_same = f"has(self.{field}) == has(oldSelf.{field})"
        if name != "etcd.managed":  # only whether it is managed, not how
            is_same += f" && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        message = f"{name} can change only while brokers.replicas is 0: set that first, wait until no broker is left"
        rules.append((f"{_WAS_STOPPED} || ({is_same})", message))
    return rules


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "The desired state of the cluster.",
        {
            "image": text("The brokers' image; default: the operator's own.", max_length=512),
            "imagePullPolicy": choice(
                "As in a container.", ["Always", "IfNotPresent", "Never"], default="IfNotPresent"
            ),
            "imagePullSecrets": list_of(text("The name of a Secret.", max_length=253)),
            "brokers": _brokers(),
            "s3": _objects(),
            "etcd": _etcd(),
            "security": security_schema.security(),
            "config": setting_properties.schema(),
            "backups": _backups(),
        },
        required_names=["brokers", "s3", "etcd"],
        rules=[
            _STOPS_IN_TIME,
            *_while_stopped("s3.bucket", "s3.namespace", "etcd.prefix", "etcd.managed"),
        ],
    )
