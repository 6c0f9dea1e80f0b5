"""The chart's values: their documentation from values.yaml, and the schema that is generated with it."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kafscale.operator.schema import cluster_schema
from kafscale.operator.schema.schema_parts import Schema, quantities

VALUES: Final = Path(__file__).resolve().parents[1] / "deploy/helm/kafscale/values.yaml"

_TEXT: Final[Schema] = {"type": "string"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string", "minLength": 1}}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_FREE: Final[Schema] = {"type": "object"}
_STRINGS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
_OWN_LABELS: Final = (
    *(f"app.kubernetes.io/{part}" for part in ("name", "instance", "component", "managed-by", "version")),
    "helm.sh/chart",
)
# Pods are selected by them, and strict readers refuse a label that appears twice.
_LABELS: Final[Schema] = {**_STRINGS, "propertyNames": {"not": {"enum": list(_OWN_LABELS)}}}
_SCHEDULE: Final[Schema] = {"type": "string", "pattern": r"^(@(hourly|daily|weekly|monthly)|\S+( \S+){4})$"}
_SECONDS: Final[Schema] = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
_RESOURCES: Final[Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": quantities()["properties"],
}
_NAME: Final[Schema] = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?$"}
_DIGEST: Final[Schema] = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}

_ALERT: Final[Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "expr": {"type": "string", "minLength": 1},
        "for": _SECONDS,
        "severity": {"type": "string", "minLength": 1},
    },
}


def _whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


_ACCOUNT: Final = {"create": _TRUTH, "name": _TEXT, "annotations": _STRINGS}
_IMAGE: Final = {"repository": {"type": "string", "minLength": 1}, "tag": _TEXT, "digest": _DIGEST}
_PLACING: Final = {"podAnnotations": _STRINGS, "nodeSelector": _STRINGS, "tolerations": _OBJECTS}

TYPES: Final[Mapping[str, Any]] = {
    "nameOverride": _NAME,
    "fullnameOverride": _NAME,
    "commonLabels": _LABELS,
    "image": {
        **_IMAGE,
        "pullPolicy": _one_of("Always", "IfNotPresent", "Never"),
        "pullSecrets": _TEXTS,
    },
    "crds": {"install": _TRUTH, "keep": _TRUTH},
    "operator": {
        "enabled": _TRUTH,
        "replicas": _whole(0, 10),
        "watchNamespaces": _TEXTS,
        "watchAllNamespaces": _TRUTH,
        "ownRoleBuckets": _TEXTS,
        "etcdImage": _TEXT,
        "logLevel": _one_of("debug", "info", "warning", "error"),
        "logFormat": _one_of("text", "json"),
        "env": _OBJECTS,
        "resources": _RESOURCES,
        "serviceAccount": _ACCOUNT,
        "rbac": {"create": _TRUTH, "secretNames": _TEXTS},
        **_PLACING,
        "affinity": _FREE,
        "priorityClassName": _TEXT,
        "networkPolicy": {"enabled": _TRUTH, "monitoring": _OBJECTS},
    },
    "monitoring": {
        "serviceMonitor": {
            "enabled": _TRUTH,
            "labels": _LABELS,
            "interval": _SECONDS,
            "scrapeTimeout": _SECONDS,
            "brokerTokenSecret": _TEXT,
        },
        "rules": {
            "enabled": _TRUTH,
            "labels": _LABELS,
            "alertLabels": _STRINGS,
            "runbookUrl": _TEXT,
            "disabled": _TEXTS,
            "overrides": {"type": "object", "additionalProperties": _ALERT},
        },
        "dashboards": {"enabled": _TRUTH, "labels": _LABELS, "annotations": _STRINGS},
    },
    "directCluster": {"enabled": _TRUTH, "name": _NAME, "spec": {"$ref": "#/definitions/clusterSpec"}},
    "lakeExport": {
        "enabled": _TRUTH,
        "schedule": _SCHEDULE,
        "suspend": _TRUTH,
        "image": _IMAGE,
        "cluster": _TEXT,
        "settingsConfigMap": _TEXT,
        "envSecrets": _TEXTS,
        "env": _OBJECTS,
        "s3CredentialsSecret": _TEXT,
        "etcdCredentialsSecret": _TEXT,
        "etcdTlsSecret": _TEXT,
        "args": {"type": "array", "items": {"type": "string"}},
        "driverMemory": {"type": "string", "pattern": "^[0-9]+[kmgt]$"},
        "resources": _RESOURCES,
        "scratchSize": {"type": "string", "pattern": "^[0-9]+([KMGT]i?)?$"},
        "activeDeadlineSeconds": _whole(1, 604800),
        "terminationGracePeriodSeconds": _whole(0, 3600),
        "serviceAccount": _ACCOUNT,
        **_PLACING,
    },
}
"""Every value's type, in the order of values.yaml; a mapping without `type` or `$ref` is a section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of values.yaml. `path`: with dots. `default`: as one line of YAML."""

    path: str
    default: str
    documentation: str


def is_section(types: Mapping[str, Any]) -> bool:
    """True if it is a section, with further values, rather than a value."""
    return "type" not in types and "$ref" not in types


@functools.cache
def documented_values() -> tuple[Value, ...]:
    """All values, in their order. Raises `ValueError` for one without a comment above it."""
    text = VALUES.read_text()
    return tuple(_values(yaml.compose(text), TYPES, text.splitlines(), ()))


def _values(
    node: yaml.MappingNode, types: Mapping[str, Any], lines: list[str], above: tuple[str, ...]
) -> Iterator[Value]:
    for key, value in node.value:
        path, inner = (*above, key.value), types.get(key.value)
        name = ".".join(path)
        if inner is None:
            raise ValueError(f"values.yaml: {name} has no type in scripts/chart_values.py")
        if is_section(inner):
            yield from _values(value, inner, lines, path)
            continue
        documentation = _comment_above(key.start_mark.line, lines)
        if not documentation:
            raise ValueError(f"values.yaml: {name} has no comment above it")
        yield Value(path=name, default=_one_line(value), documentation=documentation)


def _comment_above(line: int, lines: list[str]) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _one_line(node: yaml.Node) -> str:
    value = yaml.safe_load(yaml.serialize(node))
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return '""' if value == "" else text.removesuffix("\n").removesuffix("\n...")


def values_schema() -> dict[str, Any]:
    """JSON Schema (draft 7) of all values. Values that it does not name are refused."""
    documentation = {one.path: one.documentation for one in documented_values()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart kafscale",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **_properties(TYPES, documentation, ()),
            "global": {"type": "object", "description": "What charts share; nothing of it is used here."},
        },
        "definitions": {"clusterSpec": cluster_spec()},
    }


def _properties(
    types: Mapping[str, Any], documentation: Mapping[str, str], above: tuple[str, ...]
) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for name, inner in types.items():
        path = (*above, name)
        if is_section(inner):
            properties = _properties(inner, documentation, path)
            found[name] = {"type": "object", "additionalProperties": False, "properties": properties}
        elif "$ref" in inner:  # this draft allows nothing beside it
            found[name] = dict(inner)
        else:
            found[name] = {"description": documentation[".".join(path)], **inner}
    return found


def cluster_spec() -> Schema:
    """The schema of `directCluster.spec`: a KafscaleCluster's, without what needs the operator, in plain JSON Schema.

    Nothing is required here: it is `{}` while the direct cluster is off. The templates refuse what
    is missing, and what excludes each other.
    """
    spec = cluster_schema.spec()
    spec["properties"]["etcd"]["properties"].pop("managed")
    # Clients' certificates need a signer.
    security = spec["properties"]["security"]["properties"]
    for name in ("mutualTls", "clientCaSecret"):
        security.pop(name)
    for protocol in (security["protocol"], security["transition"]["properties"]["protocol"]):
        protocol["enum"].remove("SSL")
    # `kafscale backup` reads its bucket as it reads the records'.
    spec["properties"]["backups"]["properties"]["s3"]["properties"].pop("pathStyle")
    return _plain(spec, is_top=True)


def _plain(schema: Schema, *, is_top: bool = False) -> Schema:
    found = {name: value for name, value in schema.items() if not name.startswith("x-kubernetes-")}
    if "items" in found:
        found["items"] = _plain(found["items"])
    if "properties" in found:
        found["properties"] = {name: _plain(value) for name, value in found["properties"].items()}
        found["additionalProperties"] = False
    if is_top:
        found.pop("required", None)
    return found
