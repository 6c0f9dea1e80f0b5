"""The groups of a shard, from what the coordinator before has stored."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafscale.errors import CorruptDataError
from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.formats.group_record import GroupRecord
from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import ShareMember
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.group import Group, GroupPolicy
from kafscale.groups.modern.stored_group import StoredMembers
from kafscale.groups.share.share_group import ShareGroup, SharePolicy
from kafscale.groups.stored_bytes import stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import Snapshot
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupPolicies:
    """Settings, and the configs of a group, for groups of each type."""

    classic: GroupPolicy
    consumer: Callable[[str], ConsumerPolicy]
    share: Callable[[str], SharePolicy]


@dataclass(frozen=True, slots=True)
class LoadedGroup:
    """`member_bytes`: what each member's own key takes in the store."""

    group: AnyGroup
    record_bytes: int
    member_bytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class LoadedGroups:
    """`unreadable`: groups that are not served. `leftover_members`: keys of members of no such group."""

    groups: list[LoadedGroup] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    leftover_members: list[str] = field(default_factory=list)


def load_groups(
    stored: Snapshot, stored_members: Snapshot, policies: GroupPolicies, now_ms: int
) -> LoadedGroups:
    """Every group that can be read; the others stay as they are in the store."""
    members = StoredMembers(stored_members.items)
    loaded = LoadedGroups(unreadable=set(members.unreadable))
    for item in stored.items:
        group_id = keys.group_id(item.key)
        try:
            record = decode_any_group(item.key, item.value)
        except CorruptDataError as problem:
            logger.error("a group cannot be served", extra={"problem": quoted(str(problem), 500)})
            loaded.unreadable.add(group_id)
        if group_id in loaded.unreadable:
            members.forget(group_id)
            continue
        group: AnyGroup
        member_bytes: dict[str, int] = {}
        if isinstance(record, GroupRecord):
            group = Group.of(group_id, policies.classic, record, now_ms)
        elif isinstance(record, ShareGroupRecord):
            sharing, member_bytes = members.take(group_id, ShareMember)
            group = ShareGroup.of(group_id, policies.share(group_id), record, sharing, now_ms)
        else:
            found, member_bytes = members.take(group_id, ConsumerMember)
            group = ConsumerGroup.of(group_id, policies.consumer(group_id), record, found, now_ms)
        loaded.groups.append(LoadedGroup(group, stored_size(item.key, item.value), member_bytes))
    loaded.leftover_members.extend(members.left())
    return loaded


def empty_again(group: AnyGroup, policies: GroupPolicies, now_ms: int) -> AnyGroup:
    """An empty group that died, alive again: it could not be deleted."""
    if isinstance(group, ConsumerGroup):
        policy = policies.consumer(group.group_id)
        return ConsumerGroup.of(group.group_id, policy, group.record(), (), now_ms)
    if isinstance(group, ShareGroup):
        share_policy = policies.share(group.group_id)
        return ShareGroup.of(group.group_id, share_policy, group.record(), (), now_ms)
    return Group.of(group.group_id, policies.classic, group.record(), now_ms)
