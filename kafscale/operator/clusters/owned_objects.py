"""Ownership of a cluster's objects: they are deleted with it, and another owner's object is never written."""

from collections.abc import Mapping
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import kind_of
from kafscale.operator.kube.roles import Applies
from kafscale.operator.manifests.objects import Manifest


async def apply_own(api: Applies, manifest: Mapping[str, Any], cluster: ClusterSpec, uid: str) -> None:
    """Applies an object of the cluster whose resource has the `uid`.

    Raises `SpecError` if something else has that name.
    """
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    found = await api.find(kind, cluster.namespace, manifest["metadata"]["name"])
    if found is not None:
        why = foreign(found, cluster.name, uid)
        if why is not None:
            raise SpecError(f"{why}: rename the cluster, or remove that object")
    await api.apply(manifest)


def owned(manifest: Manifest, owner: Mapping[str, Any]) -> Manifest:
    """The manifest with an owner reference, so that it is deleted with its owner."""
    return owned_by(manifest, owner["metadata"]["name"], owner["metadata"]["uid"])


def owned_by(manifest: Manifest, name: str, uid: str) -> Manifest:
    """The same for the KafscaleCluster of that name and uid."""
    reference = {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.CLUSTER,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def is_owned_by(found: Mapping[str, Any], uid: str) -> bool:
    """True if the object is deleted with that owner."""
    return any(each["uid"] == uid for each in found["metadata"].get("ownerReferences", ()))


def foreign(found: Mapping[str, Any], cluster: str, uid: str) -> str | None:
    """Why an existing object must not be taken over; None if it may.

    Orphans of a deleted cluster of the same name are taken over, so that its brokers need not stop.
    """
    metadata = found["metadata"]
    name = f"{found['kind']} {metadata['name']}"
    for reference in metadata.get("ownerReferences", ()):
        if reference.get("controller") and reference["uid"] != uid and not _is_cluster(reference, cluster):
            return f"{name} belongs to {reference['kind']} {reference['name']}"
    labels = metadata.get("labels", {})
    is_ours = labels.get(api_names.MANAGED_BY) == api_names.FIELD_MANAGER
    if is_ours and labels.get(api_names.INSTANCE) == cluster:
        return None
    return f"{name} is there already and was not made by the operator for {cluster}"


def _is_cluster(reference: Mapping[str, Any], cluster: str) -> bool:
    return (reference["kind"], reference["name"]) == (api_names.CLUSTER, cluster)
