"""A stand-in for the group coordinator: remembers its calls, and answers what the test specifies."""

from typing import Any

from kafscale.formats.group_record import GroupRecord, MemberRecord
from kafscale.groups.group import Group, GroupPolicy
from kafscale.groups.offsets import GroupOffsets
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode, KafkaError

POLICY = GroupPolicy(initial_rebalance_delay_ms=0, max_size=100)


class GroupsStandIn:
    """`answer` is returned by every call, or called with the group id, or raised if it is an error code's.

    `calls`: group id and arguments of each.
    """

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, dict[str, Any]]] = []

    def refuse(self, code: ErrorCode) -> None:
        """Raise this from now on."""
        self.answer = KafkaError(code, "the test says so")

    def _call(self, group_id: str | None, **arguments: Any) -> Any:
        self.calls.append((group_id, arguments))
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer(group_id) if callable(self.answer) else self.answer

    @property
    def classic(self) -> "GroupsStandIn":
        """The requests of classic members, among the calls of all."""
        return self

    async def join(self, group_id: str, **arguments: Any) -> Any:
        return self._call(group_id, **arguments)

    async def sync(self, group_id: str, **arguments: Any) -> Any:
        return self._call(group_id, **arguments)

    def heartbeat(self, group_id: str, **arguments: Any) -> Any:
        return self._call(group_id, **arguments)

    async def leave(self, group_id: str, members: Any) -> Any:
        return self._call(group_id, members=members)

    async def consumer_heartbeat(self, request: Any) -> Any:
        return self._call(request.group_id, request=request)

    def describe_consumer(self, group_id: str) -> Any:
        return self._call(group_id)

    async def commit(self, group_id: str, **arguments: Any) -> Any:
        return self._call(group_id, **arguments)

    async def commit_in_transaction(self, group_id: str, committer: Any, offsets: Any) -> Any:
        return self._call(group_id, committer=committer, offsets=offsets)

    async def fetch_offsets(self, group_id: str, **arguments: Any) -> GroupOffsets:
        found = self._call(group_id, **arguments)
        return found if isinstance(found, GroupOffsets) else GroupOffsets(found)

    def describe(self, group_id: str) -> Any:
        return self._call(group_id)

    def has(self, group_id: str) -> bool:
        return False

    def groups(self) -> Any:
        return self._call(None)

    async def delete(self, group_id: str) -> Any:
        return self._call(group_id)

    async def delete_offsets(self, group_id: str, partitions: Any) -> Any:
        return self._call(group_id, partitions=tuple(partitions))


def member_record(member_id: str, group_instance_id: str | None = None) -> MemberRecord:
    return MemberRecord(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=f"client of {member_id}",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocols=(("range", b"other"), ("roundrobin", f"topics of {member_id}".encode())),
        assignment=f"part of {member_id}".encode(),
    )


def group_in_state(group_id: str, state: GroupState, *members: MemberRecord) -> Group:
    """A group of these members, which support roundrobin; without members it has only ever stored offsets."""
    record = GroupRecord(
        generation=3,
        state_since_ms=0,
        protocol_type="consumer" if members else None,
        protocol_name="roundrobin" if members else None,
        leader=members[0].member_id if members else None,
        members=members,
    )
    group = Group.of(group_id, POLICY, record, 0)
    group.state = state
    return group
