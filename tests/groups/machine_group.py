"""A raw group (group_wire.py) whose coordinator is the group machine: no broker, no sockets, no clock.

Every record is durable at once, and time passes only when a scenario says so.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, TypeVar

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

from kafscale.groups.effects import Content, Joined, Left
from kafscale.groups.events import Event, LeavingMember, Protocol, Stored
from tests.groups.table import Table
from tests.support.group_wire import MEMBER_ID_REQUIRED_SINCE, RawGroup
from tests.support.wire import Wire

SKIP_ASSIGNMENT_SINCE = 9  # of JoinGroup (KIP-814)

T = TypeVar("T")


class DurableTable(Table):
    """A group without initial delay, in a store that never fails."""

    def __init__(self) -> None:
        super().__init__(initial_delay_ms=0)
        self._durable = 0

    def apply(self, event: Event) -> None:
        super().apply(event)
        while self._durable < max(self.checked.stores, default=0):
            self._durable += 1
            super().apply(Stored(now_ms=self.now_ms, store_id=self._durable))


class MachineWire(Wire):
    """A connection to the machine. Requests and replies have the fields of kafka-python's, and no bytes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._due: deque[Any] = deque()  # reply ids of requests that may wait, and the replies to others

    def close(self) -> None:
        pass

    def send(self, request: Any, version: int) -> int:
        self._due.append(self._ask(request, version))
        self._table.passes(0)
        return 0

    def has_reply(self) -> bool:
        return not isinstance(self._due[0], int) or not self._table.waits(self._due[0])

    def receive(self, response: Any, version: int) -> tuple[int, Any]:
        assert self.has_reply(), f"no {response.__name__} yet"
        due = self._due.popleft()
        return 0, _reply(self._table.checked.answered[due].content) if isinstance(due, int) else due

    def _ask(self, request: Any, version: int) -> Any:
        table = self._table
        match request:
            case JoinGroupRequest():
                return table.join(
                    request.member_id,
                    new=f"{request.group_instance_id}-{len(table.checked.asked)}",
                    instance=request.group_instance_id,
                    protocols=tuple(Protocol(one.name, one.metadata) for one in request.protocols),
                    protocol_type=request.protocol_type,
                    session_ms=request.session_timeout_ms,
                    rebalance_ms=request.rebalance_timeout_ms,
                    required=version >= MEMBER_ID_REQUIRED_SINCE,
                    can_skip=version >= SKIP_ASSIGNMENT_SINCE,
                )
            case SyncGroupRequest():
                return table.sync(
                    request.member_id,
                    {one.member_id: one.assignment for one in request.assignments},
                    generation=request.generation_id,
                    instance=request.group_instance_id,
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                )
            case LeaveGroupRequest():
                return table.send_leave(
                    *(LeavingMember(one.member_id, one.group_instance_id) for one in request.members)
                )
            case HeartbeatRequest():
                generation, instance = request.generation_id, request.group_instance_id
                code = table.heartbeat(request.member_id, generation=generation, instance=instance)
                return SimpleNamespace(error_code=code)
            case OffsetCommitRequest():
                return self._commit(request)
            case DescribeGroupsRequest():
                members = list(table.group.members.values())
                return SimpleNamespace(
                    groups=[SimpleNamespace(group_state=table.group.state, members=members)]
                )
            case _:
                raise NotImplementedError(request)

    def _commit(self, request: Any) -> Any:
        generation, instance = request.generation_id_or_member_epoch, request.group_instance_id
        code = self._table.commit(request.member_id, generation=generation, instance=instance)
        [topic] = request.topics
        rows = [
            SimpleNamespace(partition_index=one.partition_index, error_code=code) for one in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name=topic.name, partitions=rows)])


def _reply(content: Content) -> Any:
    values = {one.name: getattr(content, one.name) for one in fields(content)}
    match content:
        case Joined():
            values["generation_id"] = content.generation
        case Left():
            values["members"] = [
                SimpleNamespace(
                    member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
                )
                for one, code in content.members
            ]
    return SimpleNamespace(**values)


class MachineGroup(RawGroup):
    """The group and its clock. What a scenario awaits is true at once, or exactly after the time it names."""

    def __init__(self) -> None:
        self._table = DurableTable()
        super().__init__(None, self.connection(), "group", contextlib.ExitStack())

    def connection(self) -> Wire:
        return MachineWire(self._table)

    def new_topic(self) -> str:
        return "topic"

    def until(self, condition: Callable[[], T], what: str, *, after_ms: int = 0) -> T:
        if after_ms:
            self.elapse(after_ms - 1)
            assert not condition(), f"{what}: too early"
            self.elapse(1)
        result = condition()
        assert result, f"{what}: not after {after_ms} ms"
        return result

    def elapse(self, duration_ms: int) -> None:
        self._table.passes(duration_ms)
