"""Very many raw members on one event loop: each a connection, with nothing of a client's weight."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from tests.support.group_wire import (
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    SYNC_VERSION,
    subscription,
)
from tests.support.waiting import PATIENCE_SEC

TIMEOUT_S = PATIENCE_SEC


@dataclass(slots=True, kw_only=True)
class CrowdMember:
    """One member. `members` are the ids that the leader received; `assignment` is that of the last sync."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    group: str
    session_timeout_ms: int = 30_000
    id: str = ""
    generation: int = -1
    leader: str = ""
    members: list[str] = field(default_factory=list)
    assignment: bytes = b""
    _correlation_id: int = 0

    async def call(self, request: Any, response: Any, version: int) -> Any:
        """Send, wait, decode."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id="crowd")
        self.writer.write(request.encode(framed=True, header=True))
        async with asyncio.timeout(TIMEOUT_S):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(length)
        return response.decode(frame, version=version, header=True)

    async def join(self) -> None:
        """Return when the next generation has its members."""
        row = JoinGroupRequest.JoinGroupRequestProtocol
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=int(TIMEOUT_S * 1000),
                member_id=self.id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[row(name="range", metadata=subscription("topic"))],
            )
            reply = await self.call(request, JoinGroupResponse, JOIN_VERSION)
            self.id = reply.member_id
            if reply.error_code != MEMBER_ID_REQUIRED:
                break
        assert reply.error_code == NONE, f"joining {self.group}: error {reply.error_code}"
        self.generation, self.leader = reply.generation_id, reply.leader
        self.members = [one.member_id for one in reply.members]

    async def sync(self) -> None:
        """The leader assigns each member its own id."""
        row = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[row(member_id=one, assignment=one.encode()) for one in self.members],
        )
        reply = await self.call(request, SyncGroupResponse, SYNC_VERSION)
        assert reply.error_code == NONE, f"syncing {self.group}: error {reply.error_code}"
        self.assignment = bytes(reply.assignment)

    async def enter(self) -> None:
        """Join and sync."""
        await self.join()
        await self.sync()

    async def heartbeat(self) -> int:
        """The error code of one Heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=None,
        )
        return int((await self.call(request, HeartbeatResponse, HEARTBEAT_VERSION)).error_code)

    async def beat(self, interval_s: float) -> None:
        """Heartbeats until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            code = await self.heartbeat()
            assert code == NONE, f"heartbeat in {self.group}: error {code}"

    async def enter_again(self, interval_s: float) -> None:
        """Heartbeats until a rebalance; then join it."""
        while (code := await self.heartbeat()) != REBALANCE_IN_PROGRESS:
            assert code == NONE, f"heartbeat in {self.group}: error {code}"
            await asyncio.sleep(interval_s)
        await self.enter()


@contextlib.asynccontextmanager
async def crowd(broker: Any, groups: Iterable[str], **options: Any) -> AsyncIterator[list[CrowdMember]]:
    """A connected member for each name, none of which has joined yet."""
    members: list[CrowdMember] = []
    try:
        for group in groups:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            members.append(CrowdMember(reader=reader, writer=writer, group=group, **options))
        yield members
    finally:
        for member in members:
            member.writer.close()
        await asyncio.gather(*(member.writer.wait_closed() for member in members), return_exceptions=True)


def shares(members: Iterable[CrowdMember]) -> Mapping[str, bytes]:
    """Member id -> assignment."""
    return {member.id: member.assignment for member in members}
