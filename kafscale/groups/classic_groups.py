"""Members of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848's consumer groups, too)."""

import uuid
from collections.abc import Callable, Mapping
from typing import cast

from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.effects import Decided, Joined, Left, Synced
from kafscale.groups.events import (
    NO_MEMBER_ID,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Protocol,
    Sync,
)
from kafscale.groups.group import GROUP_MEMORY_BYTES, Group, long_text_bytes, protocols_bytes
from kafscale.groups.request_limits import check_group_id, check_named, check_protocols, check_texts
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings


class ClassicGroups:
    """The requests of classic members. `now_ms`: see `GroupCoordinator`, whose errors each method raises."""

    def __init__(self, shards: GroupShards, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._shards = shards
        self._settings = settings
        self._now_ms = now_ms

    def _member_group(self, group_id: str) -> RunningGroup | None:
        check_named(group_id)
        return self._shards.group(group_id)

    async def join(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[Protocol, ...],
        member_id_required: bool,
        can_skip_assignment: bool = False,
        reason: str = "",
    ) -> Joined:
        """JoinGroup: returns when the next generation starts. Raises INVALID_SESSION_TIMEOUT, too."""
        running = self._member_group(group_id)
        self._check_session_timeout(session_timeout_ms)
        check_protocols(protocols)
        check_texts(group_instance_id, client_id, protocol_type, *(one.name for one in protocols))
        is_consumer = running is not None and isinstance(running.group, ConsumerGroup)
        if running is not None and is_consumer and running.group.state is GroupState.EMPTY:
            # Any first member decides of which type an empty group is.
            self._shards.shard(group_id).replace_empty(running, by_consumer=False)
        if running is not None and isinstance(running.group, ShareGroup):
            return Joined(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
        if running is None and member_id != NO_MEMBER_ID:
            return Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
        text_bytes = long_text_bytes(
            client_id, client_id, group_instance_id, group_instance_id, protocol_type
        )
        self._check_memory(group_id, running, member_id, protocols_bytes(protocols) + text_bytes)
        if running is None:
            check_group_id(group_id)
            running = self._shards.shard(group_id).create(group_id)
        reply_id = running.next_reply_id()
        event = Join(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=member_id,
            new_member_id=f"{group_instance_id or client_id}-{uuid.uuid4()}",
            group_instance_id=group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            member_id_required=member_id_required,
            can_skip_assignment=can_skip_assignment,
            reason=reason,
        )
        return cast(Joined, await running.ask(event, reply_id))

    def _check_session_timeout(self, session_timeout_ms: int) -> None:
        settings = self._settings
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not low <= session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session timeout of {session_timeout_ms} ms is not between {low} and {high}",
            )

    def create_for_commits(self, shard: GroupShard, group_id: str) -> RunningGroup:
        """A new group without members. Raises INVALID_GROUP_ID, GROUP_MAX_SIZE_REACHED."""
        self._check_memory(group_id, None, NO_MEMBER_ID, 0)
        check_group_id(group_id)
        return shard.create(group_id)

    def _check_memory(self, group_id: str, running: RunningGroup | None, member_id: str, growth: int) -> None:
        """Refuse a join that needs more memory, or room in the store, than groups may have.

        `growth`: the bytes of the member's protocols and texts.
        """
        totals, settings = self._shards.totals, self._settings
        if running is None:
            self._shards.limits.check_new_group(totals.stored, self._shards.shard_count)
            growth += long_text_bytes(group_id)
        group = None if running is None else running.group
        if isinstance(group, ConsumerGroup):
            growth -= group.memory_bytes_of(member_id)
            self._shards.limits.check_record(totals.stored, self._shards.shard_count, growth)
        elif group is None or isinstance(group, Group):
            member = None if group is None else group.members.get(member_id)
            growth += GROUP_MEMORY_BYTES if member is None else -member.memory_bytes
        if growth > 0 and totals.memory_bytes + growth > settings.group_memory_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "the groups of this broker have all the memory that KAFSCALE_GROUP_MEMORY_BYTES allows",
            )

    async def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """SyncGroup: returns when the assignment is durable."""
        running = self._member_group(group_id)
        if running is None:
            return Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(running.group, Group) and member_id == running.group.leader:
            self._check_assignments(running.group, assignments)
        else:
            assignments = {}  # Nothing reads them, and the request may wait for long.
        reply_id = running.next_reply_id()
        event = Sync(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        return cast(Synced, await running.ask(event, reply_id))

    def _check_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Refuse larger assignments than before, the leader's, once the memory for groups is used up.

        Below the limit they are accepted whole, so that one sync may exceed it: by a record's size at most.
        """
        totals, limit_bytes = self._shards.totals, self._settings.group_memory_bytes
        if not assignments or totals.memory_bytes <= limit_bytes:
            return
        growth = sum(
            len(assignments.get(member.member_id, b"")) - len(member.assignment)
            for member in group.members.values()
        )
        if growth > 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "the groups of this broker have all the memory that KAFSCALE_GROUP_MEMORY_BYTES allows",
            )

    def heartbeat(
        self, group_id: str, *, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Heartbeat: writes nothing. While groups are being loaded every member is accepted, as in Kafka."""
        try:
            running = self._member_group(group_id)
        except KafkaError as problem:
            if problem.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        if running is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        reply_id = running.next_reply_id()
        event = Heartbeat(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
        )
        return cast(Decided, running.decide(event, reply_id)).error_code

    async def leave(self, group_id: str, members: tuple[LeavingMember, ...]) -> Left:
        """LeaveGroup; that of the last members returns when it is durable."""
        running = self._member_group(group_id)
        if running is None:
            return Left(ErrorCode.NONE, tuple((member, ErrorCode.UNKNOWN_MEMBER_ID) for member in members))
        reply_id = running.next_reply_id()
        event = Leave(now_ms=self._now_ms(), reply_id=reply_id, members=members)
        return cast(Left, await running.ask(event, reply_id))
