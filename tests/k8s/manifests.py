"""Small manifests for tests of the environment: pods that the Pod Security standard "restricted" allows."""

from typing import Any

from tests.support.kube_api import Kind, Manifest

SHARES = Kind("tests.kafscale.io/v1", "Share")


def stateful_set(name: str, *, replicas: int, image: str = "app:1") -> Manifest:
    spec = {"serviceName": name, "replicas": replicas} | _pods(name, image)
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, *, replicas: int, image: str = "app:1") -> Manifest:
    spec = {"replicas": replicas} | _pods(name, image)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def job(name: str) -> Manifest:
    """One pod, tried once."""
    pod = {"spec": _pod_spec("app:1") | {"restartPolicy": "Never"}}
    spec = {"backoffLimit": 0, "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def share(name: str, *, parts: int) -> Manifest:
    metadata: dict[str, Any] = {"name": name}
    return {"apiVersion": SHARES.api_version, "kind": "Share", "metadata": metadata, "spec": {"parts": parts}}


def shares_definition() -> Manifest:
    """A custom kind with a bound, a default and a rule about changes."""
    parts = {
        "type": "integer",
        "minimum": 1,
        "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "parts never shrink"}],
    }
    colour = {"type": "string", "default": "red", "enum": ["red", "green"]}
    spec = {"type": "object", "required": ["parts"], "properties": {"parts": parts, "colour": colour}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "shares", "singular": "share", "kind": "Share"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "shares.tests.kafscale.io"},
        "spec": {"group": "tests.kafscale.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _pods(name: str, image: str) -> Manifest:
    labels = {"app": name}
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(image)},
    }


def _pod_spec(image: str) -> Manifest:
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "app", "image": image, "securityContext": allowed}],
    }
