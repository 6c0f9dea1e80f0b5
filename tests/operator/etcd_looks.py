"""Looks at etcd clusters that nobody has to start."""

from kafscale.operator.etcd.seen import Alarm, EtcdSeen, Listed, MemberSeen, MemberStatus

MIB = 2**20
CLUSTER_ID = 0xC1


def status(
    member_id: int, *, leader_id: int = 1, free: int = 0, size: int = 100 * MIB, applied: int = 1000
) -> MemberStatus:
    return MemberStatus(
        member_id=member_id,
        cluster_id=CLUSTER_ID,
        leader_id=leader_id,
        is_learner=False,
        size_bytes=size,
        in_use_bytes=size - free,
        applied_index=applied,
        revision=500,
        version="3.5.0",
    )


def peer_url(number: int) -> str:
    return f"http://c-etcd-{number}:2380"


def look(
    *statuses: MemberStatus | None, alarms: tuple[Alarm, ...] = (), majority: bool | None = None
) -> EtcdSeen:
    """Members 0, 1, ... with ids 1, 2, ..., each with its status, or silent. Most of them: the majority answers."""
    members = tuple(
        MemberSeen(name=f"c-etcd-{number}", status=each, problem="" if each else "away")
        for number, each in enumerate(statuses)
    )
    listed = tuple(
        Listed(member_id=number + 1, name=f"c-etcd-{number}", peer_urls=(peer_url(number),))
        for number in range(len(statuses))
    )
    answering = sum(each is not None for each in statuses)
    if majority is None:
        majority = answering > len(statuses) // 2
    return EtcdSeen(members=members, listed=listed if majority else None, alarms=alarms if majority else None)
