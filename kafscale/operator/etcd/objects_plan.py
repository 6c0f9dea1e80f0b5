"""Plans which objects of a managed etcd are applied now. Pure.

What Kubernetes or etcd cannot change stays as created and is noted; a change that replaces members waits until all
members are healthy enough.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, ManagedEtcd
from kafscale.operator.etcd.members_plan import may_roll
from kafscale.operator.etcd.seen import EtcdSeen
from kafscale.operator.manifests import etcd_set, names, network_policy
from kafscale.operator.manifests.etcd_start import EtcdStart
from kafscale.operator.manifests.objects import Manifest

TEMPLATE_HASH: Final = f"{api_names.GROUP}/template-hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsPlan:
    """Objects to apply, in order. `notes`: what is not carried out, each one or two sentences."""

    objects: Sequence[Manifest]
    notes: Sequence[str]


def plan_objects(
    cluster: ClusterSpec,
    managed: ManagedEtcd,
    image: str,
    start: EtcdStart,
    live: Mapping[str, Any] | None,
    seen: EtcdSeen,
    operator_namespace: str,
) -> ObjectsPlan:
    """`image`: default image. `live`: the existing StatefulSet, or None."""
    members = etcd_set.etcd_set(cluster, managed, managed.image or image, start.members)
    template = hashlib.sha256(json.dumps(members["spec"]["template"], sort_keys=True).encode()).hexdigest()[
        :16
    ]
    members["metadata"]["annotations"] = {TEMPLATE_HASH: template}
    notes = _fixed_members(cluster, managed, start)
    objects = [
        etcd_set.etcd_service(cluster),
        etcd_set.etcd_budget(cluster),
        network_policy.etcd_network_policy(cluster, operator_namespace),
    ]
    if live is not None:
        notes += _keep_volumes(members, live)
        silent = frozenset(number for number, each in enumerate(seen.members) if each.status is None)
        is_same = live["metadata"].get("annotations", {}).get(TEMPLATE_HASH) == template
        if not is_same and not may_roll(silent, start.members):
            away = ", ".join(each.name for each in seen.silent)
            notes.append(f"Members are not replaced while {away} is missed: the majority would be lost.")
            return ObjectsPlan(objects=objects, notes=notes)
    return ObjectsPlan(objects=[*objects, members], notes=notes)


def _fixed_members(cluster: ClusterSpec, managed: ManagedEtcd, start: EtcdStart) -> list[str]:
    if managed.members == start.members:
        return []
    return [
        f"{names.etcd(cluster.name)} was formed with {start.members} members and keeps them: "
        f"etcd.managed.members={managed.members} is not carried out."
    ]


def _keep_volumes(members: Manifest, live: Mapping[str, Any]) -> list[str]:
    """Keeps the existing volume claim template, which Kubernetes does not let change; returns notes."""
    wanted = members["spec"]["volumeClaimTemplates"][0]["spec"]
    found = live["spec"]["volumeClaimTemplates"][0]["spec"]
    notes = []
    size, new_size = found["resources"]["requests"]["storage"], wanted["resources"]["requests"]["storage"]
    if size != new_size:
        notes.append(
            f"Volumes keep their size of {size}: etcd.managed.storageSize={new_size} is not carried out. If their "
            "class can grow them, change the volume claims, then delete the StatefulSet with --cascade=orphan: it "
            "is created again around the running members."
        )
    old_class, new_class = found.get("storageClassName"), wanted.get("storageClassName")
    if new_class is not None and old_class != new_class:
        notes.append(
            f"Volumes keep their class {old_class}: etcd.managed.storageClassName={new_class} is not carried out."
        )
    wanted["resources"]["requests"]["storage"] = size
    if old_class is not None:
        wanted["storageClassName"] = old_class
    return notes
