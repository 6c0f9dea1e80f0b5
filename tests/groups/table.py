"""Requests to one group in few words: who asks, what it hears, and time that passes in order."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

from kafscale.groups.effects import (
    Content,
    Decided,
    Joined,
    Left,
    RebalanceCompleted,
    RebalanceStarted,
    Synced,
)
from kafscale.groups.events import (
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Protocol,
    Remove,
    Stored,
    StoreFailed,
    Sync,
    TimePassed,
    Unload,
)
from kafscale.groups.group import Group, GroupPolicy
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.checked_group import CheckedGroup

INITIAL_DELAY_MS = 3000
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000

RANGE = (Protocol("range", b"topics"),)

Kind = TypeVar("Kind", Joined, Synced, Left, Decided)


def _leaving(members: Sequence[str | LeavingMember]) -> list[LeavingMember]:
    return [LeavingMember(one) if isinstance(one, str) else one for one in members]


class Table:
    """A group and its clock, checked after every event (checked_group.py).

    Requests that may wait return the reply id; `heard` gives its outcome.
    """

    def __init__(self, *, initial_delay_ms: int = INITIAL_DELAY_MS, max_size: int = 2**31 - 1) -> None:
        policy = GroupPolicy(initial_rebalance_delay_ms=initial_delay_ms, max_size=max_size)
        self.checked = CheckedGroup(policy)
        self.now_ms = 0
        self.started: list[RebalanceStarted] = []
        self.completed: list[RebalanceCompleted] = []
        self._numbers = itertools.count(1)

    @property
    def group(self) -> Group:
        return self.checked.group

    def is_in(self, state: GroupState) -> bool:
        """True if the group is in this state."""
        return self.group.state is state

    def apply(self, event: Event) -> None:
        """Let it happen."""
        for effect in self.checked.apply(event):
            match effect:
                case RebalanceStarted():
                    self.started.append(effect)
                case RebalanceCompleted():
                    self.completed.append(effect)

    def passes(self, duration_ms: int) -> None:
        """Time passes, and no deadline is missed on the way."""
        end_ms = self.now_ms + duration_ms
        while (deadline := self.group.next_deadline_ms()) is not None and deadline <= end_ms:
            self.now_ms = deadline
            self.apply(TimePassed(now_ms=deadline))
        self.now_ms = end_ms

    def gathers(self) -> None:
        """Time passes until the rebalance no longer waits for anybody."""
        while self.is_in(GroupState.PREPARING_REBALANCE):
            deadline = self.group.join_deadline_ms
            assert deadline is not None
            self.passes(deadline - self.now_ms)

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        new: str = "",
        instance: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_TIMEOUT_MS,
        rebalance_ms: int = REBALANCE_TIMEOUT_MS,
        required: bool = False,
        can_skip: bool = False,
    ) -> int:
        """JoinGroup. `new`: the id that a member without one gets."""
        reply_id = next(self._numbers)
        self.apply(
            Join(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=member_id,
                new_member_id=new,
                group_instance_id=instance,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                member_id_required=required,
                can_skip_assignment=can_skip,
            )
        )
        return reply_id

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        """SyncGroup, of this generation unless another is given."""
        reply_id = next(self._numbers)
        self.apply(
            Sync(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=member_id,
                group_instance_id=instance,
                generation=self.group.generation if generation is None else generation,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            )
        )
        return reply_id

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        """Heartbeat, of this generation unless another is given."""
        reply_id = next(self._numbers)
        self.apply(
            Heartbeat(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=member_id,
                group_instance_id=instance,
                generation=self.group.generation if generation is None else generation,
            )
        )
        return self.heard(reply_id, Decided).error_code

    def commit(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        """OffsetCommit, of this generation unless another is given."""
        reply_id = next(self._numbers)
        self.apply(
            Commit(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=member_id,
                group_instance_id=instance,
                generation=self.group.generation if generation is None else generation,
            )
        )
        return self.heard(reply_id, Decided).error_code

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        """LeaveGroup: the outcome of each."""
        reply_id = self.send_leave(*members)
        if self.waits(reply_id):  # The last members hear of it once it is durable.
            self.stored()
        left = self.heard(reply_id, Left)
        assert [member for member, _ in left.members] == _leaving(members)
        return [error_code for _, error_code in left.members] or [left.error_code]

    def send_leave(self, *members: str | LeavingMember) -> int:
        """LeaveGroup, to be answered now or later."""
        reply_id = next(self._numbers)
        leaving = tuple(_leaving(members))
        self.apply(Leave(now_ms=self.now_ms, reply_id=reply_id, members=leaving))
        return reply_id

    def left(self, reply_id: int) -> Left:
        """The answer to a leave."""
        return self.heard(reply_id, Left)

    def remove(self) -> ErrorCode:
        """DeleteGroups."""
        reply_id = next(self._numbers)
        self.apply(Remove(now_ms=self.now_ms, reply_id=reply_id))
        return self.heard(reply_id, Decided).error_code

    def unload(self) -> None:
        """Another broker has the group."""
        self.apply(Unload(now_ms=self.now_ms))

    # Their outcome

    def waits(self, *reply_ids: int) -> bool:
        """True if none of these has been answered."""
        return not any(reply_id in self.checked.answered for reply_id in reply_ids)

    def heard(self, reply_id: int, kind: type[Kind]) -> Kind:
        """The answer, which must have been given."""
        content: Content = self.checked.answered[reply_id].content
        assert isinstance(content, kind)
        return content

    def joined(self, reply_id: int) -> Joined:
        """The answer to a join."""
        return self.heard(reply_id, Joined)

    def synced(self, reply_id: int) -> Synced:
        """The answer to a sync."""
        return self.heard(reply_id, Synced)

    @property
    def store_id(self) -> int:
        """The newest request to the store."""
        return max(self.checked.stores)

    def stored(self, store_id: int | None = None) -> None:
        """The store has it."""
        self.apply(Stored(now_ms=self.now_ms, store_id=self.store_id if store_id is None else store_id))

    def store_fails(self, error_code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """The newest request to the store did not succeed in time."""
        self.apply(StoreFailed(now_ms=self.now_ms, store_id=self.store_id, error_code=error_code))

    # Ways to a state

    def preparing(self, *members: str) -> None:
        """Members `a`, `b`, ... of a stable group of which nobody has joined the next generation."""
        self.stable(*members, "last")
        self.leave("last")

    def completing(
        self,
        *members: str,
        session_ms: int = SESSION_TIMEOUT_MS,
        rebalance_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        """A first generation of these members, which has no assignments yet. The first one leads.

        A name that begins with `static` is an instance id too.
        """
        for name in members:
            instance = name if name.startswith("static") else None
            self.join(new=name, instance=instance, session_ms=session_ms, rebalance_ms=rebalance_ms)
        self.gathers()
        assert self.is_in(GroupState.COMPLETING_REBALANCE)
        assert self.group.leader == members[0]

    def stable(
        self,
        *members: str,
        session_ms: int = SESSION_TIMEOUT_MS,
        rebalance_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        """As `completing`, with everybody's assignment: `part of a` for `a`."""
        self.completing(*members, session_ms=session_ms, rebalance_ms=rebalance_ms)
        self.complete()

    def complete(self) -> None:
        """The members sync, and the store has the assignments."""
        members = list(self.group.members)
        assert self.group.leader is not None
        self.sync(self.group.leader, {one: f"part of {one}".encode() for one in members})
        for member_id in members:
            self.sync(member_id)
        self.stored()
        assert self.is_in(GroupState.STABLE)


def protocols(*names: str) -> tuple[Protocol, ...]:
    """Protocols in order of preference; each says its own name."""
    return tuple(Protocol(name, f"{name} of mine".encode()) for name in names)
