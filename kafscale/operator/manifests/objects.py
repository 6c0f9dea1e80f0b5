"""Parts that all objects of a cluster share."""

from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec

Manifest = dict[str, Any]


def manifest(
    api_version: str, kind: str, name: str, cluster: ClusterSpec, component: str, **parts: Any
) -> Manifest:
    """An object in the cluster's namespace, with the cluster's labels."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": api_names.labels(cluster.name, component),
        },
        **parts,
    }


def pod_security() -> dict[str, Any]:
    """A pod's security context for the Pod Security standard "restricted"."""
    return {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """A container's security context for the same."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def from_secret(variable: str, secret: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    """An environment variable from a Secret."""
    reference: dict[str, Any] = {"name": secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}


def store_credentials(objects: str | None, etcd: str | None) -> list[dict[str, Any]]:
    """The variables with the credentials for the bucket and for etcd, from Secrets of these names."""
    found = []
    if objects is not None:
        found += [
            from_secret("KAFSCALE_S3_ACCESS_KEY", objects, "AWS_ACCESS_KEY_ID"),
            from_secret("KAFSCALE_S3_SECRET_KEY", objects, "AWS_SECRET_ACCESS_KEY"),
            from_secret("KAFSCALE_S3_SESSION_TOKEN", objects, "AWS_SESSION_TOKEN", optional=True),
        ]
    if etcd is not None:
        found += [
            from_secret("KAFSCALE_ETCD_USERNAME", etcd, "username"),
            from_secret("KAFSCALE_ETCD_PASSWORD", etcd, "password"),
        ]
    return found


def from_field(variable: str, path: str) -> dict[str, Any]:
    """An environment variable from a field of the pod."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
