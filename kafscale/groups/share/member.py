"""A member's way to its target, which it takes over at its next heartbeat: no other has to give anything up first."""

from dataclasses import replace

from kafscale.formats.share_member_record import ShareMember
from kafscale.groups.modern.assignment import Assignment


def at_target(member: ShareMember, epoch: int, target: Assignment) -> ShareMember:
    """The member with what the target assignment of this epoch gives it."""
    if member.member_epoch == epoch and member.assigned == target:
        return member
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.previous_member_epoch
        if member.member_epoch == epoch
        else member.member_epoch,
        assigned=target,
    )
