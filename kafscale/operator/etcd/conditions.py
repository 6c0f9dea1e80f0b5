"""Conditions of a managed etcd: its state, and what an administrator has to do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.conditions import Condition
from kafscale.operator.etcd.seen import CORRUPT, NO_SPACE, EtcdSeen, is_raised, unhealthy_reason
from kafscale.operator.etcd.upkeep_plan import ROOM_SHARE
from kafscale.operator.manifests.etcd_start import NO_DATA, EtcdStart, StartPhase

HEALTHY: Final = "EtcdHealthy"
SPACE_HEALTHY: Final = "EtcdSpaceHealthy"
AS_SPECIFIED: Final = "EtcdAsSpecified"

GIVE_UP: Final = f"{api_names.GROUP}/give-up-etcd"
"""Annotation that gives up a managed etcd's data; its value is the lost cluster's id."""

NEARLY_FULL_SHARE: Final = 0.8


def lost_data(pods: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Names of members whose last start failed because they have no data."""
    found = set()
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", ()):
            state = container.get("state", {})
            ended = state.get("terminated")
            if ended is None and "running" not in state:
                ended = container.get("lastState", {}).get("terminated")
            if ended is not None and NO_DATA in ended.get("message", ""):
                found.add(pod["metadata"]["name"])
    return frozenset(found)


def etcd_conditions(
    start: EtcdStart, seen: EtcdSeen, lost: frozenset[str], quota_bytes: int, notes: Sequence[str]
) -> list[Condition]:
    """All conditions of the managed etcd. `notes`: parts of the specification that are not carried out, and why."""
    return [_health(start, seen, lost), _space(seen, quota_bytes), _specified(notes)]


def _health(start: EtcdStart, seen: EtcdSeen, lost: frozenset[str]) -> Condition:
    count, answering = len(seen.members), len(seen.answering)
    silent = "; ".join(f"{each.name} does not answer ({each.problem})" for each in seen.silent)
    numbers = f"{answering} of {count} members answer."
    if start.phase is StartPhase.FORMING:
        return _condition(HEALTHY, False, "Forming", f"The cluster forms. {numbers} {silent}".strip())
    if seen.silent and {each.name for each in seen.silent} <= lost and not seen.answering:
        return _condition(HEALTHY, False, "DataLost", _all_lost(start))
    if not seen.has_majority:
        message = f"No majority: {numbers} {silent}. No offset can be committed."
        if lost:
            message += f" Without data: {', '.join(sorted(lost))}. {_GET_BACK}"
        return _condition(HEALTHY, False, "NoMajority", message)
    if start.phase is StartPhase.JOINING:
        return _condition(
            HEALTHY, False, "MemberJoining", f"A member without data joins. {numbers} {silent}".strip()
        )
    if lost & {each.name for each in seen.silent}:
        names = ", ".join(sorted(lost))
        message = f"{names} lost its data and is replaced: it fetches everything from the others. {numbers}"
        return _condition(HEALTHY, False, "MemberLostData", message)
    if seen.silent:
        return _condition(HEALTHY, False, "MemberDown", f"{numbers} {silent}. The others go on.")
    why = unhealthy_reason(seen)
    if why is not None:
        return _condition(HEALTHY, False, "NotSettled", f"{numbers} But {why}.")
    leader = seen.name_of(seen.statuses[0].leader_id)
    return _condition(HEALTHY, True, "AllMembersAnswer", f"All {count} members answer, {leader} leads.")


_GET_BACK: Final = "Get the volumes back if you can; if most are gone for good, see docs/managed-etcd.md."


def _all_lost(start: EtcdStart) -> str:
    return (
        "No member has any data, and none starts, so that an empty cluster is not taken for this one. Get the "
        "volumes back if you can. If they are gone for good, stop the brokers and annotate this resource with "
        f"{GIVE_UP}={start.cluster_id}: an empty etcd is formed, into which kafscale recover brings the metadata "
        "back from the bucket and a backup (docs/managed-etcd.md)."
    )


def _space(seen: EtcdSeen, quota_bytes: int) -> Condition:
    if is_raised(seen, CORRUPT):
        names = ", ".join(_raisers(seen, CORRUPT))
        message = (
            f"The data of {names} differs from the others'. Delete its volume claim and its pod: it then fetches "
            f"everything again. Disarm the alarm with etcdctl alarm disarm."
        )
        return _condition(SPACE_HEALTHY, False, "Corrupt", message)
    if is_raised(seen, NO_SPACE):
        message = (
            f"The quota of {quota_bytes} bytes is used up: nothing can be written. History is given up and members "
            f"are defragmented; the alarm goes when all files are below {ROOM_SHARE:.0%} of the quota. If it stays, "
            "raise etcd.managed.quotaBytes."
        )
        return _condition(SPACE_HEALTHY, False, "NoSpace", message)
    if not seen.statuses or seen.alarms is None:
        return _condition(SPACE_HEALTHY, None, "NotKnown", "No majority of members answers.")
    used = max(each.in_use_bytes for each in seen.statuses)
    # Without the measured size, which is a metric: the status would be rewritten with every change.
    share = f"{NEARLY_FULL_SHARE:.0%} of {quota_bytes} bytes are in use"
    if used >= NEARLY_FULL_SHARE * quota_bytes:
        message = (
            f"More than {share}: raise etcd.managed.quotaBytes. With nothing left nothing can be written."
        )
        return _condition(SPACE_HEALTHY, False, "NearlyFull", message)
    return _condition(SPACE_HEALTHY, True, "EnoughRoom", f"Less than {share}.")


def _raisers(seen: EtcdSeen, kind: str) -> list[str]:
    return sorted({seen.name_of(each.member_id) for each in seen.alarms or () if each.kind == kind})


def _specified(notes: Sequence[str]) -> Condition:
    if notes:
        return _condition(AS_SPECIFIED, False, "NotCarriedOut", " ".join(notes))
    return _condition(AS_SPECIFIED, True, "CarriedOut", "The managed etcd is as it is specified.")


def _condition(kind: str, is_so: bool | None, reason: str, message: str) -> Condition:
    return Condition(type=kind, is_so=is_so, reason=reason, message=message)
