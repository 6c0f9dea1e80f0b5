"""Which etcd member is spoken to: one at a time, the next one after a failure."""

import asyncio
import logging
import random
from dataclasses import dataclass

from aetcd import rpc

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.etcd.cancellation import cancellation_kept
from kafscale.metadata.etcd.config import EtcdConfig, EtcdTimeouts
from kafscale.metadata.etcd.connection import (
    CALL_ERRORS,
    EtcdConnection,
    EtcdRefusedError,
    code_and_details,
)
from kafscale.metadata.etcd.verdict import PERMISSION_DENIED, USER_NEEDED
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProblem:
    """Why an endpoint could not be used. `refused`: it answered, and waiting will not help."""

    endpoint: str
    text: str
    refused: bool


class EtcdEndpoints:
    """Hands out a connection that works. A connection is tried with a read before it is used."""

    def __init__(
        self, config: EtcdConfig, probe_key: bytes, timeouts: EtcdTimeouts, randomness: random.Random
    ) -> None:
        self._config = config
        self._probe = rpc.RangeRequest(key=probe_key, limit=1)
        self._timeouts = timeouts
        self._randomness = randomness
        # Brokers with the same list spread over the members.
        self._next = randomness.randrange(len(config.endpoints))
        self._cluster_id: int | None = None
        self._current: EtcdConnection | None = None
        self._connecting: asyncio.Task[EtcdConnection] | None = None
        self._closing = TaskOwner()
        self._closed = False
        self.problems: tuple[EndpointProblem, ...] = ()

    async def connection(self, wait_sec: float) -> EtcdConnection:
        """A connection that works as far as is known.

        Raises `StoreUnavailableError` when there is none within `wait_sec`; looking for one goes on.
        """
        if self._closed:
            raise StoreUnavailableError("the metadata store is closed")
        if self._current is not None:
            if self._current.is_usable():
                return self._current
            self.retire(self._current)
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="etcd connection")
        connecting = self._connecting
        # Not awaited itself: a waiter may be cancelled, the others still want the connection.
        await asyncio.wait({connecting}, timeout=wait_sec)
        if connecting.cancelled() or self._closed:
            raise StoreUnavailableError("the metadata store is closed")
        if not connecting.done():
            problems = "; ".join(problem.text for problem in self.problems) or "none has answered yet"
            raise StoreUnavailableError(f"no etcd endpoint can be used: {problems}")
        return connecting.result()

    def check_cluster(self, connection: EtcdConnection, header: rpc.ResponseHeader) -> None:
        """Raise `EtcdRefusedError` for an answer of another cluster than the first one.

        For every answer: behind a name, or when gRPC connects again by itself, there may be another one.
        """
        if header.cluster_id != self._cluster_id:
            raise EtcdRefusedError(
                f"{connection.endpoint} belongs to the etcd cluster {header.cluster_id:x}, this broker began "
                f"with {self._cluster_id:x}: correct KAFSCALE_ETCD_ENDPOINTS, or, if etcd was restored from a "
                "snapshot, restart the broker"
            )

    def retire(self, connection: EtcdConnection) -> None:
        """Use the connection no longer, which failed: the next caller gets another one."""
        connection.retire()
        if connection is self._current:
            self._current = None
            self._close_later(connection, self._timeouts.attempt_sec)

    async def try_each(self) -> EtcdConnection | None:
        """Try every endpoint once, beginning with the next one; None, and `problems`, when none can be used."""
        problems = []
        count = len(self._config.endpoints)
        for step in range(count):
            position = (self._next + step) % count
            found = await self._try(self._config.endpoints[position])
            if isinstance(found, EtcdConnection):
                self._next = (position + 1) % count
                self._current = found
                self.problems = ()
                logger.info("connected to etcd", extra={"endpoint": found.endpoint})
                return found
            problems.append(found)
        self.problems = tuple(problems)
        return None

    async def close(self) -> None:
        """Close every connection; calls in flight end with an error."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._current is not None:
            self._close_later(self._current, None)
            self._current = None
        await self._closing.wait()

    async def _connect(self) -> EtcdConnection:
        pause_sec = self._timeouts.first_pause_sec
        reported = self.problems
        try:
            while (found := await self.try_each()) is None:
                if self.problems != reported:
                    reported = self.problems
                    logger.warning(
                        "no etcd endpoint can be used, trying again",
                        extra={"problems": [problem.text for problem in reported]},
                    )
                await asyncio.sleep(pause_sec * self._randomness.uniform(0.5, 1))
                pause_sec = min(pause_sec * 2, self._timeouts.longest_pause_sec)
            return found
        finally:
            self._connecting = None

    async def _try(self, endpoint: str) -> EtcdConnection | EndpointProblem:
        try:
            connection = EtcdConnection(endpoint, self._config)
        except OSError as problem:
            text = f"cannot read {problem.filename}: {problem.strerror}"
            return EndpointProblem(endpoint=endpoint, text=text, refused=True)
        tried = False
        try:
            await self._check(connection)
            tried = True
        except EtcdRefusedError as problem:
            return EndpointProblem(endpoint=endpoint, text=str(problem), refused=True)
        except CALL_ERRORS as error:
            _, details = code_and_details(error)
            return EndpointProblem(endpoint=endpoint, text=f"{endpoint}: {details}", refused=False)
        finally:
            if not tried:
                self._close_later(connection, None)
        return connection

    async def _check(self, connection: EtcdConnection) -> None:
        """Log in and read: that takes a member with a leader, permission, and the cluster that it was before."""
        timeout_sec = self._timeouts.connect_sec
        await connection.login(None, timeout_sec)
        try:
            read = connection.kv.Range(self._probe, timeout=timeout_sec, metadata=connection.metadata())
            with cancellation_kept(connection.endpoint):
                answer = await read
        except CALL_ERRORS as error:
            _, details = code_and_details(error)
            refusal = refusal_of(details, connection.endpoint, self._config)
            if refusal is not None:
                raise EtcdRefusedError(refusal, details) from error
            raise
        if self._cluster_id is None:
            self._cluster_id = answer.header.cluster_id
        self.check_cluster(connection, answer.header)

    def _close_later(self, connection: EtcdConnection, grace_sec: float | None) -> None:
        self._closing.spawn(connection.close(grace_sec), f"close {connection.endpoint}")


def refusal_of(details: str, endpoint: str, config: EtcdConfig) -> str | None:
    """The remedy for an answer that will not change by itself, None for any other."""
    if details == USER_NEEDED:
        return f"etcd at {endpoint} wants a user: set KAFSCALE_ETCD_USERNAME and KAFSCALE_ETCD_PASSWORD"
    if details == PERMISSION_DENIED:
        who = f"the user {config.username!r}" if config.username else "this client certificate's user"
        return (
            f"etcd at {endpoint} does not let {who} at {config.prefix}/: grant its role `readwrite` on that "
            "prefix (etcdctl role grant-permission --prefix=true), or correct KAFSCALE_ETCD_PREFIX"
        )
    return None
