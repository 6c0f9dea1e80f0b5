"""Modern groups in the metadata store: the writes of their changes, and what a new coordinator reads."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from kafscale.errors import CorruptDataError
from kafscale.formats.consumer_group_record import ConsumerGroupRecord, encode_consumer_group
from kafscale.formats.consumer_member_record import (
    ConsumerMember,
    decode_consumer_member,
    encode_consumer_member,
)
from kafscale.formats.share_group_record import ShareGroupRecord, encode_share_group
from kafscale.formats.share_member_record import (
    ShareMember,
    decode_share_member,
    encode_share_member,
    is_share_member,
)
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.modern_group import MemberType
from kafscale.groups.stored_bytes import stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, Operation, Put
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

MODERN_GROUP_BYTES: Final = 512
"""The record of a consumer group, or of a share group, with its key takes less in the store."""


def encode_modern_group(record: ConsumerGroupRecord | ShareGroupRecord) -> bytes:
    """The stored bytes."""
    match record:
        case ConsumerGroupRecord():
            return encode_consumer_group(record)
        case ShareGroupRecord():
            return encode_share_group(record)
        case _:
            assert_never(record)


def _encode_member(member: ConsumerMember | ShareMember) -> bytes:
    match member:
        case ConsumerMember():
            return encode_consumer_member(member)
        case ShareMember():
            return encode_share_member(member)
        case _:
            assert_never(member)


def operations_of(group_id: str, changes: StoreChanges) -> list[Operation]:
    """The writes of the changes, in an order that may be cut anywhere.

    The members come before the group's record: a classic group that has become a consumer group must not be loaded
    with a part of them. Without that record they mean nothing.
    """
    group: list[Operation] = (
        [] if changes.record is None else [Put(keys.group(group_id), encode_modern_group(changes.record))]
    )
    members = (
        Put(keys.group_member(group_id, one.member_id), _encode_member(one)) for one in changes.members
    )
    removed = (Delete(keys.group_member(group_id, one)) for one in changes.removed)
    return [*members, *group, *removed]


def count_members(sizes: dict[str, int], operations: Iterable[Operation]) -> int:
    """Keep the sizes of members' records, by key, as the writes change them; returns all of them together."""
    for one in operations:
        if not one.key.startswith(keys.GROUP_MEMBERS):
            continue
        if isinstance(one, Put):
            sizes[one.key] = stored_size(one.key, one.value)
        else:
            sizes.pop(one.key, None)
    return sum(sizes.values())


class StoredMembers:
    """The members of a shard's groups, as they are stored. `unreadable`: groups of which one cannot be read."""

    def __init__(self, items: Iterable[KeyValue]) -> None:
        self.unreadable: set[str] = set()
        self._members: dict[str, dict[str, tuple[ConsumerMember | ShareMember, int]]] = {}
        for item in items:
            self._read(item)

    def _read(self, item: KeyValue) -> None:
        try:
            group_id, member_id = keys.group_and_member(item.key)
        except ValueError:
            logger.warning("a key is that of no member", extra={"key": quoted(item.key)})
            return
        try:
            decode = decode_share_member if is_share_member(item.value) else decode_consumer_member
            member = decode(item.key, member_id, item.value)
        except CorruptDataError as problem:
            logger.error("a member cannot be read", extra={"problem": quoted(str(problem), 500)})
            self.unreadable.add(group_id)
            return
        size = stored_size(item.key, item.value)
        self._members.setdefault(group_id, {})[item.key] = (member, size)

    def take(self, group_id: str, member_type: type[MemberType]) -> tuple[list[MemberType], dict[str, int]]:
        """The members of a group of this type, and what each takes in the store, by key.

        Members of the other type, which an earlier group of the id has left over, stay.
        """
        members, sizes, others = [], {}, {}
        for key, (member, size) in self._members.pop(group_id, {}).items():
            if isinstance(member, member_type):
                members.append(member)
                sizes[key] = size
            else:
                others[key] = member, size
        if others:
            self._members[group_id] = others
        return members, sizes

    def forget(self, group_id: str) -> None:
        """The members of a group that is not served stay as they are."""
        self._members.pop(group_id, None)

    def left(self) -> Iterator[str]:
        """The keys of the members that no group has taken."""
        return (key for of_group in self._members.values() for key in of_group)
