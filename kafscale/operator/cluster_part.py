"""A part of the operator that looks after something of a cluster: what it reads, and its share of the status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from kafscale.operator import conditions
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.conditions import Condition
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import CLUSTER
from kafscale.operator.kube.roles import AppliesStatus, Finds

Manifest = dict[str, Any]
Wanted = TypeVar("Wanted")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusShare:
    """The condition types and fields of a cluster's status that one part owns, as field manager `manager`."""

    manager: str
    types: frozenset[str]
    fields: Sequence[str] = ()

    async def write(
        self,
        api: AppliesStatus,
        resource: Mapping[str, Any],
        wanted: Sequence[Condition],
        now: datetime,
        *,
        fields: Mapping[str, Any],
        is_warning: Callable[[Condition], bool],
    ) -> None:
        """Applies the share if it differs, then records an event for each condition that turned."""
        metadata, status = resource["metadata"], resource.get("status", {})
        before = status.get("conditions", [])
        merged = conditions.merged(before, wanted, metadata["generation"], now)
        known = {each["type"]: each for each in before if each["type"] in self.types}
        is_same = known == {each["type"]: each for each in merged}
        if not is_same or any(status.get(name, {}) != value for name, value in fields.items()):
            await self._apply(api, metadata, {**fields, "conditions": merged})
        for condition in conditions.changed(before, wanted):
            await api.event(resource, condition.reason, condition.message, warning=is_warning(condition))

    async def withdraw(self, api: AppliesStatus, resource: Mapping[str, Any]) -> None:
        """Removes the share from the status: the cluster does not ask for this part."""
        status = resource.get("status", {})
        types = {each["type"] for each in status.get("conditions", ())}
        if types & self.types or any(name in status for name in self.fields):
            await self._apply(api, resource["metadata"], {})

    async def _apply(
        self, api: AppliesStatus, metadata: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        await api.apply_status(
            CLUSTER, metadata["namespace"], metadata["name"], status, field_manager=self.manager
        )


class PartApi(Finds, AppliesStatus, Protocol):
    """The part of `KubeClient` that `wanted_part` needs."""


async def wanted_part(
    api: PartApi,
    namespace: str,
    name: str,
    *,
    choose: Callable[[ClusterSpec], Wanted | None],
    share: StatusShare,
    forget: Callable[[str, str], None],
) -> tuple[Manifest, ClusterSpec, Wanted] | None:
    """The cluster's resource, its specification, and the part that `choose` takes of it; None: nothing to do.

    Calls `forget` if the cluster is gone, is being deleted or does not ask for the part; in the last case the
    part's share of the status goes, too. Raises `KubeError`.
    """
    resource = await api.find(CLUSTER, namespace, name)
    if resource is None or resource["metadata"].get("deletionTimestamp"):
        forget(namespace, name)
        return None
    try:
        cluster = cluster_spec(name, namespace, resource["spec"])
    except SpecError:
        return None  # the cluster's own conditions say so
    wanted = choose(cluster)
    if wanted is None:
        forget(namespace, name)
        await share.withdraw(api, resource)
        return None
    return resource, cluster, wanted
