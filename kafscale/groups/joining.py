"""JoinGroup: who may join, and when a join starts a rebalance (KIP-345 static members, KIP-394 member ids)."""

from kafscale.groups.effects import Answer, Joined, Store, Synced
from kafscale.groups.events import NO_MEMBER_ID, Join
from kafscale.groups.group import Group, Member, Replacement
from kafscale.groups.rebalancing import (
    Effects,
    answer_join,
    answer_sync,
    await_join,
    complete_join_if_all_joined,
    current_generation,
    extend_session,
    prepare_rebalance,
    rebalance_or_complete_join,
    remove_member,
)
from kafscale.groups.states import GroupState
from kafscale.groups.validation import member_error
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quoting import quoted

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member has no session yet: it is removed when its join has waited this long. Clients retry sooner."""


def join(group: Group, event: Join, out: Effects) -> None:
    """Add the member or let it join again, or answer with an error."""
    if not _has_room(group, event.member_id):
        if event.member_id in group.members:
            remove_member(group, event.member_id, out)
        _refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID, out)
    elif not group.supports(event.protocol_type, event.protocols):
        _refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id, out)
    elif event.member_id == NO_MEMBER_ID:
        _join_new(group, event, out)
    else:
        _join_known(group, event, out)


def _refuse(event: Join, error_code: ErrorCode, member_id: str, out: Effects) -> None:
    out.append(Answer(event.reply_id, Joined(error_code=error_code, member_id=member_id)))


def _because(event: Join) -> str:
    return f": {event.reason}" if event.reason else ""


def _has_room(group: Group, member_id: str) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Counts the members that have joined: a lowered limit keeps the last ones out (as Kafka does).
            waits = member is not None and member.awaiting_join is not None
            return waits or group.awaiting_join_count < group.policy.max_size
        case _:
            return member is not None or len(group.members) < group.policy.max_size


def _join_new(group: Group, event: Join, out: Effects) -> None:
    instance_id = event.group_instance_id
    if instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is not None:
            _replace(group, old_member_id, event, out)
        else:
            _add(group, event.new_member_id, event, out)
    elif event.member_id_required:
        group.add_pending(event.new_member_id, event.now_ms + event.session_timeout_ms)
        _refuse(event, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id, out)
    else:
        _add(group, event.new_member_id, event, out)


def _add(group: Group, member_id: str, event: Join, out: Effects) -> None:
    if not group.members:
        group.set_protocol_type(event.protocol_type)
    member = Member(
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        is_new=True,
        awaiting_join=event.reply_id,
        expires_at_ms=event.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
    )
    group.add(member)
    group.member_added = True
    rebalance_or_complete_join(
        group, f"member {quoted(member_id)} joined{_because(event)}", event.now_ms, out
    )


def _join_known(group: Group, event: Join, out: Effects) -> None:
    if event.member_id in group.pending_members and event.group_instance_id is None:
        _add(group, event.member_id, event, out)
        return
    error_code = member_error(group, event.member_id, event.group_instance_id)
    if error_code is not ErrorCode.NONE:
        _refuse(event, error_code, event.member_id, out)
        return
    member = group.members[event.member_id]
    unchanged = member.protocols == event.protocols
    is_leader = group.leader == member.member_id
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # The answer to its first join may be lost.
        members = group.members_for_leader() if is_leader else ()
        out.append(Answer(event.reply_id, current_generation(group, member, members)))
    elif group.state is GroupState.STABLE and unchanged and not is_leader:
        # It only has to fetch its assignment. A leader that joins again wants to assign again, for example
        # because a topic has new partitions.
        out.append(Answer(event.reply_id, current_generation(group, member)))
    else:
        _update(group, member, event, out)
        rebalance_or_complete_join(
            group, f"member {quoted(member.member_id)} joined again{_because(event)}", event.now_ms, out
        )


def _update(group: Group, member: Member, event: Join, out: Effects) -> None:
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    await_join(member, event.reply_id, out)


def _replace(group: Group, old_member_id: str, event: Join, out: Effects) -> None:
    """A static member has returned, or a second one uses its instance id: the former owner of the id is fenced."""
    former_leader = group.leader
    member = group.replace(old_member_id, event.new_member_id)
    answer_join(member, Joined(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id), out)
    answer_sync(member, Synced(error_code=ErrorCode.FENCED_INSTANCE_ID), out)
    member.client_id, member.client_host = event.client_id, event.client_host
    _update(group, member, event, out)
    extend_session(member, event.now_ms)
    names = f"{quoted(event.group_instance_id or '')} joined again as {quoted(member.member_id)}"
    reason = f"static member {names}{_because(event)}"
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(group, event.now_ms, out)
    elif group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        # Without a rebalance it keeps its assignment, once its new id is durable.
        store_id = group.next_store_id()
        group.replacements_to_store[store_id] = Replacement(
            member.member_id, former_leader, event.can_skip_assignment
        )
        out.append(Store(store_id, group.record()))
    else:
        prepare_rebalance(group, reason, event.now_ms, out)
