"""Mistakes that a consumer group could make; the walk must find each of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.groups.consumer import heartbeats, machine, reconciling, settling
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import RegexResolved
from kafscale.groups.consumer.settling import Effects
from kafscale.groups.effects import Answer
from kafscale.groups.events import TimePassed, Unload
from kafscale.groups.modern import stored_group
from kafscale.groups.modern.assignment import partitions_of
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicsChanged
from kafscale.metadata.store import Delete, Operation

Plant = Callable[[pytest.MonkeyPatch], None]


def _row(patch: pytest.MonkeyPatch, event: type, action: Callable[..., None]) -> None:
    patch.setitem(machine.TABLE, event, action)


def _reconciles_with(patch: pytest.MonkeyPatch, is_owned: Callable[[ConsumerGroup, Any], bool]) -> None:
    go_on, reconcile = heartbeats.go_on, reconciling.reconcile
    groups: list[ConsumerGroup] = []

    def going_on(group: ConsumerGroup, awaited: Any) -> Answer:
        groups[:] = [group]
        return go_on(group, awaited)

    def otherwise(member: Any, epoch: int, target: Any, _: Any, owned: Any) -> ConsumerMember:
        return reconcile(member, epoch, target, lambda partition: is_owned(groups[0], partition), owned)

    for module in (heartbeats, machine):
        patch.setattr(module, "go_on", going_on)
    patch.setattr(heartbeats, "reconcile", otherwise)


def gives_what_another_has(patch: pytest.MonkeyPatch) -> None:
    """A partition is given before the member that has it has given it up."""
    _reconciles_with(patch, lambda group, partition: False)


def forgets_pending_revocations(patch: pytest.MonkeyPatch) -> None:
    """Partitions that a member is to give up count as free."""

    def is_owned(group: ConsumerGroup, partition: Any) -> bool:
        return any(partition in partitions_of(member.assigned) for member in group.members.values())

    _reconciles_with(patch, is_owned)


def takes_silence_for_giving_up(patch: pytest.MonkeyPatch) -> None:
    """A member that does not say what it has is taken to have nothing."""
    owns_any = reconciling._owns_any
    patch.setattr(
        reconciling, "_owns_any", lambda owned, revoked: owned is not None and owns_any(owned, revoked)
    )


def answers_before_the_store(patch: pytest.MonkeyPatch) -> None:
    """Answers do not wait for the changes that they tell of."""
    settle = settling.settle

    def early(group: ConsumerGroup, answers: Sequence[Answer], now_ms: int, out: Effects) -> None:
        settle(group, (), now_ms, out)
        out.extend(answers)

    for module in (heartbeats, machine):
        patch.setattr(module, "settle", early)


def waits_for_its_own_changes_only(patch: pytest.MonkeyPatch) -> None:
    """An answer that changes nothing itself does not wait for the changes before it."""
    settle = settling.settle

    def early(group: ConsumerGroup, answers: Sequence[Answer], now_ms: int, out: Effects) -> None:
        changes = group.changes
        if changes.members or changes.removed or changes.group:
            settle(group, answers, now_ms, out)
        else:
            out.extend(answers)

    for module in (heartbeats, machine):
        patch.setattr(module, "settle", early)


def fences_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    """The partitions of a member that was removed are nobody's."""

    patch.setattr(machine, "members_removed", lambda group, reason, now_ms, out: None)


def has_no_rebalance_timeout(patch: pytest.MonkeyPatch) -> None:
    """A member may take for ever to give up."""
    patch.setattr(ConsumerGroup, "set_rebalance_deadline", lambda group, member_id, at_ms: None)


def has_no_session_timeout(patch: pytest.MonkeyPatch) -> None:
    """A member that died stays a member."""

    def time_passed(group: ConsumerGroup, event: TimePassed, out: Effects) -> None:
        group.sessions = dict.fromkeys(group.sessions, event.now_ms + 10_000)
        machine.time_passed(group, event, out)

    _row(patch, TimePassed, time_passed)


def does_not_renew_sessions(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat does not postpone the end of a session."""
    set_session = ConsumerGroup.set_session

    def once(group: ConsumerGroup, member_id: str, at_ms: int) -> None:
        if member_id not in group.sessions:
            set_session(group, member_id, at_ms)

    patch.setattr(ConsumerGroup, "set_session", once)


def misses_topics_while_assigning(patch: pytest.MonkeyPatch) -> None:
    """Topics that change while a target is computed are seen no more."""

    def assigned(group: ConsumerGroup, event: Assigned, out: Effects) -> None:
        group.newer_topics = None
        machine.assigned(group, event, out)

    _row(patch, Assigned, assigned)


def misses_topics(patch: pytest.MonkeyPatch) -> None:
    """Topics that change are nobody's concern."""

    def ignored(group: ConsumerGroup, event: TopicsChanged, out: Effects) -> None:
        pass

    _row(patch, TopicsChanged, ignored)


def ignores_what_a_regex_matches_later(patch: pytest.MonkeyPatch) -> None:
    """The topics of a regular expression stay those of the first time."""

    def resolved(group: ConsumerGroup, event: RegexResolved, out: Effects) -> None:
        if event.regex not in group.resolved:
            machine.regex_resolved(group, event, out)

    _row(patch, RegexResolved, resolved)


def does_not_compare_after_loading(patch: pytest.MonkeyPatch) -> None:
    """A loaded group takes for granted that its members have what they should have."""

    def loaded(group: ConsumerGroup, event: Loaded, out: Effects) -> None:
        group.topics = {}

    _row(patch, Loaded, loaded)


def rebalances_after_loading(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator has a new epoch, with or without need."""

    def loaded(group: ConsumerGroup, event: Loaded, out: Effects) -> None:
        if group.members:
            settling.raise_epoch(group, "loaded", event.now_ms, out)
        machine.loaded(group, event, out)

    _row(patch, Loaded, loaded)


def does_not_delete_members(patch: pytest.MonkeyPatch) -> None:
    """The record of a member that left stays."""
    operations_of = stored_group.operations_of

    def puts(group_id: str, changes: StoreChanges) -> list[Operation]:
        return [one for one in operations_of(group_id, changes) if not isinstance(one, Delete)]

    patch.setattr(stored_group, "operations_of", puts)


def does_not_store_epochs(patch: pytest.MonkeyPatch) -> None:
    """The group's record is written once."""
    operations_of = stored_group.operations_of
    patch.setattr(
        stored_group,
        "operations_of",
        lambda group_id, changes: operations_of(
            group_id,
            changes
            if changes.record is None or changes.record.group_epoch == 1
            else replace(changes, record=None),
        ),
    )


def goes_on_for_members_that_left(patch: pytest.MonkeyPatch) -> None:
    """A request that a member has given up is carried out all the same, whenever its turn comes."""
    patch.setattr(heartbeats, "supersede", lambda group, member_id, out: None)


def forgets_who_waits(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that moves answers those only that wait for the store."""

    def unload(group: ConsumerGroup, event: Unload, out: Effects) -> None:
        group.awaited_targets.take_all()
        machine.unload(group, event, out)

    _row(patch, Unload, unload)


def forgets_a_regex_of_one_member(patch: pytest.MonkeyPatch) -> None:
    """A change of the only member with a regular expression forgets its topics."""
    put = ConsumerGroup.put

    def forgetting(group: ConsumerGroup, member: ConsumerMember) -> None:
        before = group.members.get(member.member_id)
        if before is not None and before != member and before.subscribed_topic_regex is not None:
            group._count(before, -1)
            group._count(before, 1)
        put(group, member)

    patch.setattr(ConsumerGroup, "put", forgetting)


def keeps_partitions_of_who_was_replaced(patch: pytest.MonkeyPatch) -> None:
    """A static member's former id stays a member beside the new one."""
    remove = ConsumerGroup.remove

    def kept(group: ConsumerGroup, member_id: str) -> None:
        if group.members[member_id].member_epoch != -2:
            remove(group, member_id)

    patch.setattr(ConsumerGroup, "remove", kept)


MISTAKES: tuple[Plant, ...] = (
    gives_what_another_has,
    forgets_pending_revocations,
    takes_silence_for_giving_up,
    answers_before_the_store,
    waits_for_its_own_changes_only,
    fences_without_a_new_epoch,
    has_no_rebalance_timeout,
    has_no_session_timeout,
    does_not_renew_sessions,
    misses_topics_while_assigning,
    misses_topics,
    ignores_what_a_regex_matches_later,
    does_not_compare_after_loading,
    rebalances_after_loading,
    does_not_delete_members,
    does_not_store_epochs,
    goes_on_for_members_that_left,
    forgets_who_waits,
    forgets_a_regex_of_one_member,
    keeps_partitions_of_who_was_replaced,
)
