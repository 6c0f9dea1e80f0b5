"""A member's way to the target assignment: first it gives up, then it gets what no other member has (KIP-848).

As Apache Kafka's CurrentAssignmentBuilder.
"""

from collections.abc import Callable
from dataclasses import replace

from kafscale.formats.consumer_member_record import ConsumerMember, MemberState
from kafscale.groups.modern.assignment import (
    Assignment,
    TopicIdPartition,
    difference,
    intersection,
    union,
)


def is_reconciled(member: ConsumerMember, target_epoch: int) -> bool:
    """True if the member has what the target of this epoch gives it."""
    return member.state is MemberState.STABLE and member.member_epoch == target_epoch


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[TopicIdPartition], bool],
    owned: Assignment | None,
) -> ConsumerMember:
    """The member after its next step.

    `is_owned`: a member has the partition, or has not given it up yet. `owned`: what the member says it has; None if
    it does not say.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, member.pending_revocation):
                return member
            return _next(member, member.member_epoch + 1, target_epoch, target, is_owned, owned)
        case _:
            return _next(member, member.member_epoch, target_epoch, target, is_owned, owned)


def _owns_any(owned: Assignment | None, revoked: Assignment) -> bool:
    """A member that does not say what it has may have all of it."""
    return owned is None or bool(intersection(owned, revoked))


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[TopicIdPartition], bool],
    owned: Assignment | None,
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    revoked = difference(member.assigned, kept)
    if revoked and _owns_any(owned, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
    missing = difference(target, kept)
    free = {
        topic_id: released
        for topic_id, indexes in missing.items()
        if (released := frozenset(index for index in indexes if not is_owned((topic_id, index))))
    }
    is_complete = free == missing
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, union(kept, free), {})


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Assignment, revoked: Assignment
) -> ConsumerMember:
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=revoked,
    )
