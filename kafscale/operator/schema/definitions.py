"""The custom resource definitions: structural schemas, kubectl's columns, subresources."""

from collections.abc import Sequence
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.schema import cluster_schema, export_schema, export_status, topic_schema, user_schema
from kafscale.operator.schema.schema_parts import Schema, structural


def _conditions() -> Schema:
    """As metav1.Condition."""
    return {
        "type": "array",
        "description": "The resource's conditions.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    }


def _status(phases: Sequence[str], properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "description": "Observed state, written by the operator.",
        "properties": {
            "phase": {"type": "string", "enum": list(phases), "description": "Summary of the conditions."},
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "Generation of the specification that this status describes.",
            },
            "conditions": _conditions(),
            **properties,
        },
    }


def _number(description: str) -> Schema:
    return {"type": "integer", "format": "int64", "description": description}


def _word(description: str) -> Schema:
    return {"type": "string", "description": description}


MAX_NAME = 43
"""With the suffix `-broker-999-external` a service's name has the maximum length."""

CLUSTER_PHASES = ("Pending", "Progressing", "Ready", "Degraded", "Stopped", "Failed", "Deleting")
TOPIC_PHASES = ("Pending", "Ready", "Failed", "Deleting")
USER_PHASES = TOPIC_PHASES
EXPORT_PHASES = TOPIC_PHASES


def _cluster_status() -> Schema:
    return _status(
        CLUSTER_PHASES,
        {
            "replicas": _number("Desired number of brokers."),
            "readyReplicas": _number("Number of ready brokers."),
            "updatedReplicas": _number("Number of brokers with the current specification."),
            "selector": _word("Selector of the brokers' pods, for autoscalers."),
            "bootstrapServers": _word("bootstrap.servers for clients within the Kubernetes cluster."),
            "externalBootstrapServers": _word("bootstrap.servers for clients outside."),
            "backup": {
                "type": "object",
                "description": "The newest snapshot of the metadata store.",
                "properties": {
                    "lastSuccessTime": {
                        "type": "string",
                        "format": "date-time",
                        "description": "Time of the newest snapshot.",
                    },
                    "lastAttemptTime": {
                        "type": "string",
                        "format": "date-time",
                        "description": "Time of the last attempt.",
                    },
                    "key": _word("Its key in the backup bucket."),
                    "revision": _number("etcd's revision of the snapshot."),
                    "sizeBytes": _number("Its size."),
                    "sha256": _word("Its checksum."),
                },
            },
        },
    )


def _topic_status() -> Schema:
    return _status(
        TOPIC_PHASES,
        {
            "topicName": _word("The topic's name in Kafka."),
            "topicId": _word("The topic's id."),
            "partitions": _number("Number of partitions."),
            "appliedConfig": {
                "type": "object",
                "description": "Configs set by this resource; reset once it no longer names them.",
                "additionalProperties": {"type": "string"},
            },
        },
    )


def _user_status() -> Schema:
    return _status(
        USER_PHASES,
        {
            "principal": _word("The user's principal in Kafka, such as User:alice."),
            "secret": _word("The Secret with the password, or the certificate and its key."),
            "applied": {
                "type": "array",
                "description": "Parts of the user set by this resource; removed once it no longer names them.",
                "items": {"type": "string"},
            },
        },
    )


def _column(name: str, kind: str, path: str, description: str, priority: int = 0) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}


_AGE = _column("Age", "date", ".metadata.creationTimestamp", "Age of the resource.")
_WHY = _column(
    "Message", "string", '.status.conditions[?(@.type=="Ready")].message', "The problem, if any.", 1
)
_PHASE = _column("Phase", "string", ".status.phase", "Summary of the conditions.")


def _definition(
    kind: str,
    plural: str,
    short: str,
    spec: Schema,
    status: Schema,
    columns: Sequence[dict[str, Any]],
    subresources: dict[str, Any],
    rules: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{api_names.GROUP}"},
        "spec": {
            "group": api_names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["kafscale"],
            },
            "versions": [
                {
                    "name": api_names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": list(columns),
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {"spec": structural(spec), "status": status},
                            **({"x-kubernetes-validations": list(rules)} if rules else {}),
                        }
                    },
                }
            ],
        },
    }


def cluster_definition() -> dict[str, Any]:
    """KafscaleCluster."""
    return _definition(
        api_names.CLUSTER,
        api_names.CLUSTERS,
        "kfc",
        cluster_schema.spec(),
        _cluster_status(),
        [
            _column("Desired", "integer", ".status.replicas", "Desired number of brokers."),
            _column("Ready", "integer", ".status.readyReplicas", "Number of ready brokers."),
            _PHASE,
            _column("Backup", "date", ".status.backup.lastSuccessTime", "Time of the newest snapshot."),
            _column("Bootstrap", "string", ".status.bootstrapServers", "Bootstrap servers.", 1),
            _WHY,
            _AGE,
        ],
        {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.brokers.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        [
            {
                "rule": f"self.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?$')",
                "message": f"a cluster's name is at most {MAX_NAME} of a-z, 0-9 and -, beginning with a letter: "
                "services and pods are named after it",
            }
        ],
    )


def topic_definition() -> dict[str, Any]:
    """KafscaleTopic."""
    return _definition(
        api_names.TOPIC,
        api_names.TOPICS,
        "kft",
        topic_schema.spec(),
        _topic_status(),
        [
            _column("Cluster", "string", ".spec.clusterRef.name", "The topic's cluster."),
            _column("Topic", "string", ".status.topicName", "Its name in Kafka."),
            _column("Partitions", "integer", ".status.partitions", "Number of partitions."),
            _PHASE,
            _WHY,
            _AGE,
        ],
        {"status": {}},
    )


def user_definition() -> dict[str, Any]:
    """KafscaleUser."""
    return _definition(
        api_names.USER,
        api_names.USERS,
        "kfu",
        user_schema.spec(),
        _user_status(),
        [
            _column("Cluster", "string", ".spec.clusterRef.name", "The user's cluster."),
            _column("Authentication", "string", ".spec.authentication.type", "How the user logs in."),
            _column("Principal", "string", ".status.principal", "Its principal in Kafka.", 1),
            _column("Secret", "string", ".status.secret", "The Secret with its credentials."),
            _PHASE,
            _WHY,
            _AGE,
        ],
        {"status": {}},
    )


def export_definition() -> dict[str, Any]:
    """KafscaleExport."""
    return _definition(
        api_names.EXPORT,
        api_names.EXPORTS,
        "kfe",
        export_schema.spec(),
        _status(EXPORT_PHASES, export_status.properties()),
        [
            _column("Cluster", "string", ".spec.clusterRef.name", "The cluster of the topics."),
            _column("Engine", "string", ".spec.engine", "What exports."),
            _column("Topics", "integer", ".status.topicCount", "Number of topics."),
            _column("Failed", "integer", ".status.failedTopics", "Number of topics whose export failed."),
            _column("Lag", "integer", ".status.lag", "Offsets that the tables lack."),
            _column("Complete", "date", ".status.completeTime", "Until when all tables have everything."),
            _column("DeadLetters", "integer", ".status.deadLetters", "Values that did not decode.", 1),
            _PHASE,
            _WHY,
            _AGE,
        ],
        {"status": {}},
        [
            {
                "rule": f"self.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?$')",
                "message": f"an export's name is at most {MAX_NAME} of a-z, 0-9 and -, beginning with a letter: "
                "its CronJob and pods are named after it",
            }
        ],
    )


def all_definitions() -> list[dict[str, Any]]:
    """All of them."""
    return [cluster_definition(), export_definition(), topic_definition(), user_definition()]
