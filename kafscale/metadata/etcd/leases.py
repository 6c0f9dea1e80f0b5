"""Leases in etcd."""

from collections.abc import Sequence

from aetcd import rpc

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.etcd.calls import EtcdCalls, Repeat
from kafscale.metadata.etcd.connection import EtcdConnection, EtcdRefusedError
from kafscale.metadata.etcd.verdict import LEASE_NOT_FOUND


class EtcdLeases:
    """Grants, renews and revokes leases. Raises what `EtcdCalls.call` raises."""

    def __init__(self, calls: EtcdCalls) -> None:
        self._calls = calls

    async def grant(self, ttl_sec: int) -> int:
        """A new lease. An attempt of unknown outcome may leave another one, which ends by itself."""

        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.LeaseGrantResponse:
            request = rpc.LeaseGrantRequest(TTL=ttl_sec)
            return await connection.leases.LeaseGrant(
                request, timeout=timeout_sec, metadata=connection.metadata()
            )

        answer = await self._calls.call(f"a lease of {ttl_sec} s", send, Repeat.IDEMPOTENT)
        return int(answer.ID)

    async def renew(self, lease: int) -> bool:
        """False when etcd says that there is no such lease."""

        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.LeaseKeepAliveResponse:
            requests = iter([rpc.LeaseKeepAliveRequest(ID=lease)])
            call = connection.leases.LeaseKeepAlive(
                requests, timeout=timeout_sec, metadata=connection.metadata()
            )
            answers = [answer async for answer in call]
            if not answers:
                # No answer is not the answer that the lease has ended.
                raise StoreUnavailableError(f"{connection.endpoint} did not answer")
            return answers[0]

        answer = await self._calls.call(f"the renewal of lease {lease}", send, Repeat.IDEMPOTENT)
        return int(answer.TTL) > 0

    async def revoke(self, lease: int) -> None:
        """End the lease; nothing when there is none."""

        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.LeaseRevokeResponse:
            request = rpc.LeaseRevokeRequest(ID=lease)
            return await connection.leases.LeaseRevoke(
                request, timeout=timeout_sec, metadata=connection.metadata()
            )

        try:
            await self._calls.call(f"the end of lease {lease}", send, Repeat.IDEMPOTENT)
        except EtcdRefusedError as refused:
            if refused.details != LEASE_NOT_FOUND:
                raise

    async def ended_of(self, leases: Sequence[int]) -> int:
        """The one of these leases that has ended; by etcd's answer, at least one has."""
        for lease in leases[:-1]:
            if not await self._is_live(lease):
                return lease
        return leases[-1]

    async def _is_live(self, lease: int) -> bool:
        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.LeaseTimeToLiveResponse:
            request = rpc.LeaseTimeToLiveRequest(ID=lease)
            return await connection.leases.LeaseTimeToLive(
                request, timeout=timeout_sec, metadata=connection.metadata()
            )

        answer = await self._calls.call(f"a look at lease {lease}", send, Repeat.READ)
        return int(answer.TTL) >= 0
