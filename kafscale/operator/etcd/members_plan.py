"""Formation of an etcd cluster, and replacement of members that lost their data. Pure: one step at a time.

Each step follows from the observed state alone, so a crash between two steps does no harm:

    Forming -- every member answers, as one cluster --> Formed
    Formed  -- a member says that it has no data, most others answer --> it is removed
    Formed  -- the list lacks a member --> it is added again, under a new id
    Formed  -- the list has one that never started --> Joining: it alone may start without data
    Joining -- the list has none that never started --> Formed
    Formed  -- no member answers, and the administrator gives the cluster up --> Forming, as another cluster

Under its old id a member must not return without its data: it has forgotten its acknowledgements and votes, and with
it the cluster could lose what it has acknowledged.
"""

from dataclasses import dataclass, replace

from kafscale.operator.etcd.seen import EtcdSeen, Listed, unhealthy_reason
from kafscale.operator.manifests.etcd_start import EtcdStart, StartPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Change the instructions for members that start without data."""

    start: EtcdStart


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMember:
    """Remove the member from etcd's list."""

    member: Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMember:
    """Add a member at this peer URL to etcd's list."""

    peer_url: str


Step = Begin | RemoveMember | AddMember


def next_step(
    start: EtcdStart,
    seen: EtcdSeen,
    *,
    peer_urls: tuple[str, ...],
    lost: frozenset[str],
    given_up: str | None,
    new_token: str,
) -> Step | None:
    """`peer_urls`: of the desired members, in the order of `seen.members`.

    `lost`: names of members that refuse to start because they have no data. `given_up`: id of the cluster that the
    administrator gives up, in hex.
    """
    if start.phase is StartPhase.FORMING:
        return _formed(start, seen)
    if start.cluster_id == given_up and not seen.answering:
        return Begin(start=replace(start, phase=StartPhase.FORMING, cluster_id=None, token=new_token))
    if seen.listed is None or len(seen.answering) <= start.members // 2:
        return None
    if any(not set(each.peer_urls) <= set(peer_urls) for each in seen.listed):
        return None  # another tool is changing this cluster
    places = {url: each.name for each, url in zip(seen.members, peer_urls, strict=True)}
    unstarted = [places[each.peer_urls[0]] for each in seen.listed if not each.has_started]
    joining = unstarted[0] if unstarted else None
    if joining != start.joining:
        phase = StartPhase.FORMED if joining is None else StartPhase.JOINING
        return Begin(start=replace(start, phase=phase, joining=joining))
    if joining is not None:
        return None
    listed_urls = {url for each in seen.listed for url in each.peer_urls}
    missing = [url for url in peer_urls if url not in listed_urls]
    if missing:
        return AddMember(peer_url=missing[0])
    answering = {status.member_id for status in seen.statuses}
    forgetful = [each for each in seen.listed if each.name in lost and each.member_id not in answering]
    return RemoveMember(member=forgetful[0]) if forgetful else None


def _formed(start: EtcdStart, seen: EtcdSeen) -> Step | None:
    if unhealthy_reason(seen) is not None or len(seen.members) != start.members:
        return None
    if not all(each.has_started for each in seen.listed or ()):
        return None
    cluster_id = f"{seen.statuses[0].cluster_id:x}"
    return Begin(start=replace(start, phase=StartPhase.FORMED, cluster_id=cluster_id))


def may_roll(silent: frozenset[int], members: int) -> bool:
    """True if the StatefulSet may replace pods, which starts at the highest ordinal and waits for each.

    If a missing member is not the first in that order, replacing a working one could cost the majority. Without a
    majority there is nothing to lose, and the change may bring it back.
    """
    if len(silent) > (members - 1) // 2:
        return True
    return silent <= frozenset(range(members - len(silent), members))
