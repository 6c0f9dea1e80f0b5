"""Maintenance calls to an etcd cluster's members: status, defragmentation, compaction, membership."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from aetcd import rpc

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.etcd.cancellation import cancellation_kept
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.metadata.etcd.connection import CALL_ERRORS, EtcdConnection, code_and_details
from kafscale.operator.etcd.seen import Alarm, EtcdSeen, Listed, MemberSeen, MemberStatus

# Any key will do: the read proves that the member's file is readable.
_READ: Final = rpc.RangeRequest(key=b"kafscale", limit=1, keys_only=True, serializable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceTimeouts:
    """Time limits of an answer and of a defragmentation, which may take minutes."""

    answer_sec: float = 3.0
    defragment_sec: float = 600.0


DEFAULT_TIMEOUTS: Final = MaintenanceTimeouts()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A client's authorities, certificate and key (PEM); read for each connection."""

    ca: Path
    certificate: Path
    key: Path


Call = Callable[[EtcdConnection], Awaitable[Any]]
"""Makes one call on a connection to a member."""


class EtcdMaintenance:
    """A cluster's members by name, with their client URLs; `tls` for https. Keeps no connection.

    Calls that change something raise `StoreIndeterminateError` if they fail: call `look` again.
    """

    def __init__(
        self,
        endpoints: Mapping[str, str],
        timeouts: MaintenanceTimeouts = DEFAULT_TIMEOUTS,
        tls: TlsFiles | None = None,
    ) -> None:
        self._endpoints = dict(endpoints)
        self._tls = tls
        self._timeouts = timeouts

    async def look(self) -> EtcdSeen:
        """Asks every member for its status. A member that is being defragmented does not answer."""
        found = await asyncio.gather(*(self._ask(name) for name in self._endpoints))
        listed = alarms = None
        for member in found:
            if member.status is not None and member.status.leader_id:
                listed, alarms = await self._ask_cluster(member.name)
                if alarms is not None:
                    break
        return EtcdSeen(members=tuple(found), listed=listed, alarms=alarms)

    async def defragment(self, name: str) -> None:
        """Defragments the member's file; the member does not answer meanwhile."""
        request = rpc.DefragmentRequest()
        await self._do(name, "defragment", lambda stubs: stubs.maintenance.Defragment(request), True)

    async def move_leader(self, leader: str, successor_id: int) -> None:
        """Transfers leadership to another member."""
        request = rpc.MoveLeaderRequest(targetID=successor_id)
        await self._do(leader, "hand over the lead", lambda stubs: stubs.maintenance.MoveLeader(request))

    async def compact(self, name: str, revision: int) -> None:
        """Compacts history before the revision in all members; returns once this one is done."""
        request = rpc.CompactionRequest(revision=revision, physical=True)
        await self._do(name, f"compact to {revision}", lambda stubs: stubs.kv.Compact(request), True)

    async def disarm(self, name: str, alarm: Alarm) -> None:
        """Disarms an alarm."""
        request = rpc.AlarmRequest(
            action=rpc.AlarmRequest.DEACTIVATE,
            memberID=alarm.member_id,
            alarm=rpc.AlarmType.Value(alarm.kind),
        )
        await self._do(name, f"disarm {alarm.kind}", lambda stubs: stubs.maintenance.Alarm(request))

    async def remove_member(self, name: str, member_id: int) -> None:
        """Removes a member from the cluster; `name`: the member that is asked."""
        request = rpc.MemberRemoveRequest(ID=member_id)
        await self._do(
            name, f"remove member {member_id:x}", lambda stubs: stubs.members.MemberRemove(request)
        )

    async def add_member(self, name: str, peer_url: str) -> None:
        """Adds a member to the cluster, which will start at this URL."""
        request = rpc.MemberAddRequest(peerURLs=[peer_url])
        await self._do(name, f"add member {peer_url}", lambda stubs: stubs.members.MemberAdd(request))

    async def _ask(self, name: str) -> MemberSeen:
        try:
            async with self._connected(name) as stubs, asyncio.timeout(self._timeouts.answer_sec):
                status = await stubs.maintenance.Status(rpc.StatusRequest())
                read = await stubs.kv.Range(_READ)
        except CALL_ERRORS as error:
            code, details = code_and_details(error)
            return MemberSeen(name=name, status=None, problem=f"{code.name}: {details}")
        except TimeoutError:
            return MemberSeen(
                name=name, status=None, problem=f"no answer within {self._timeouts.answer_sec:g} s"
            )
        return MemberSeen(
            name=name,
            status=MemberStatus(
                member_id=status.header.member_id,
                cluster_id=status.header.cluster_id,
                leader_id=status.leader,
                is_learner=status.isLearner,
                size_bytes=status.dbSize,
                in_use_bytes=status.dbSizeInUse,
                applied_index=status.raftAppliedIndex,
                revision=read.header.revision,
                version=status.version,
            ),
        )

    async def _ask_cluster(self, name: str) -> tuple[tuple[Listed, ...] | None, tuple[Alarm, ...] | None]:
        """Members and alarms, which need a majority; asked of a member that has a leader."""
        try:
            async with self._connected(name) as stubs, asyncio.timeout(self._timeouts.answer_sec):
                # A proposal of its own makes the other answer current.
                raised = await stubs.maintenance.Alarm(rpc.AlarmRequest(action=rpc.AlarmRequest.GET))
                members = await stubs.members.MemberList(rpc.MemberListRequest(linearizable=True))
        except (*CALL_ERRORS, TimeoutError):
            return None, None
        listed = tuple(
            Listed(member_id=each.ID, name=each.name, peer_urls=tuple(each.peerURLs))
            for each in members.members
        )
        alarms = tuple(
            Alarm(member_id=each.memberID, kind=rpc.AlarmType.Name(each.alarm)) for each in raised.alarms
        )
        return listed, alarms

    async def _do(self, name: str, what: str, call: Call, is_long: bool = False) -> None:
        limit_sec = self._timeouts.defragment_sec if is_long else self._timeouts.answer_sec
        try:
            async with self._connected(name) as stubs, asyncio.timeout(limit_sec):
                await call(stubs)
        except CALL_ERRORS as error:
            code, details = code_and_details(error)
            raise StoreIndeterminateError(f"{name}: {what}: {code.name}: {details}") from error
        except TimeoutError as error:
            raise StoreIndeterminateError(f"{name}: {what}: not done within {limit_sec:g} s") from error

    @asynccontextmanager
    async def _connected(self, name: str) -> AsyncIterator[EtcdConnection]:
        endpoint = self._endpoints[name]
        config = EtcdConfig(endpoints=(endpoint,), prefix="")
        if self._tls is not None:
            config = replace(config, ca=self._tls.ca, cert=self._tls.certificate, key=self._tls.key)
        connection = EtcdConnection(endpoint, config)
        try:
            with cancellation_kept(endpoint):
                yield connection
        finally:
            await connection.close(None)
