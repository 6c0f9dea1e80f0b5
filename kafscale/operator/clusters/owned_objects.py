"""Writes the objects of a cluster, and none that is somebody else's."""

from collections.abc import Mapping
from typing import Any, Protocol

from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.clusters.plan import foreign
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import Kind, kind_of


class ApplyApi(Protocol):
    """What is needed of `KubeClient`."""

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object, or None."""

    async def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply; with a resourceVersion only over that."""


async def apply_own(api: ApplyApi, manifest: Mapping[str, Any], cluster: ClusterSpec, uid: str) -> None:
    """`uid`: the cluster resource's. Raises `SpecError` where something else has that name."""
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    found = await api.find(kind, cluster.namespace, manifest["metadata"]["name"])
    if found is not None:
        why = foreign(found, cluster.name, uid)
        if why is not None:
            raise SpecError(f"{why}: rename the cluster, or remove that object")
    await api.apply(manifest)
