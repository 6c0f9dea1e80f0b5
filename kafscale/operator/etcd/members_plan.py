"""How an etcd cluster forms, and how a member that lost its data is replaced. Pure: one step at a time.

Every step is told by what is seen, so that it does not matter who did the one before, or was killed after it:

    Forming -- every member answers, as one cluster --> Formed
    Formed  -- a member says that it has no data, most others answer --> it is taken off the list
    Formed  -- the list lacks a member --> it is put on it anew, under a new id
    Formed  -- the list has one that never started --> Joining: it alone may start without data
    Joining -- the list has none that never started --> Formed
    Formed  -- no member answers, and somebody gives the cluster up --> Forming, as another cluster

Under its old id a member must not come back without its data: it has forgotten what it acknowledged and for whom it
voted, and with it the cluster could forget what others were promised.
"""

from dataclasses import dataclass, replace

from kafscale.operator.etcd.seen import EtcdSeen, Listed, unhealthy_reason
from kafscale.operator.manifests.etcd_start import EtcdStart, StartPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Members that start without data are to be told something else."""

    start: EtcdStart


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMember:
    """Take the member off the list."""

    member: Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMember:
    """Put a member at this peer URL on the list."""

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
    """`peer_urls`: of the members that there are to be, in the order of `seen.members`.

    `lost`: names of members that refuse to start because they have no data. `given_up`: the id of the cluster that
    somebody gives up, in hex as etcd has it.
    """
    if start.phase is StartPhase.FORMING:
        return _formed(start, seen)
    if start.cluster_id == given_up and not seen.answering:
        return Begin(start=replace(start, phase=StartPhase.FORMING, cluster_id=None, token=new_token))
    if seen.listed is None or len(seen.answering) <= start.members // 2:
        return None
    if any(not set(each.peer_urls) <= set(peer_urls) for each in seen.listed):
        return None  # somebody else changes this cluster
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
    """Whether pods may be replaced by new ones, which begins with the highest number and waits for each.

    With a member away that would not come first, replacing one that works would cost the majority. Where there is
    none there is nothing to lose, and the change may be what brings it back.
    """
    if len(silent) > (members - 1) // 2:
        return True
    return silent <= frozenset(range(members - len(silent), members))
