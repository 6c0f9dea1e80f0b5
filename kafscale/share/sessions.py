"""Share sessions (KIP-932): which partitions a member fetches, and which of its requests comes next. Pure.

A member has one session at each broker that leads partitions for it. It is mandatory: a request names only what has
changed since the one before, and a broker that has no session, or is asked out of turn, must say so.
"""

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from kafscale.protocol.error_codes import ErrorCode, KafkaError

OPENS: Final = 0
"""The epoch of a request that opens a session."""
CLOSES: Final = -1
"""The epoch of a request that ends one."""
PARTITIONS_MAX: Final = 1_000_000
"""Of all sessions of a broker: a client names any, and each takes some 150 bytes."""
_LAST_EPOCH: Final = 2**31 - 1

SharedPartition = tuple[uuid.UUID, int]
"""A topic's id, and a partition's index."""


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A member of a share group."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """`epoch`: of the next request. `connection`: which has opened it, and ends it."""

    key: SessionKey
    connection: object
    epoch: int = 1
    partitions: dict[SharedPartition, None] = field(default_factory=dict)

    def in_turn(self) -> list[SharedPartition]:
        """The partitions; each request begins with another one, so that none is always the last."""
        order = list(self.partitions)
        first = self.epoch % len(order) if order else 0
        return order[first:] + order[:first]

    def advance(self) -> None:
        """A request was taken."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1


class ShareSessions:
    """The sessions of a broker; at most `limit` of them, with at most `partition_limit` partitions together."""

    def __init__(self, limit: int, partition_limit: int = PARTITIONS_MAX) -> None:
        self._limit = limit
        self._partition_limit = partition_limit
        self._partition_count = 0
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connection: dict[object, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, connection: object) -> ShareSession:
        """A new session, in the place of one that the member may have had.

        Raises `KafkaError` SHARE_SESSION_LIMIT_REACHED.
        """
        self.remove(key)
        if len(self._sessions) >= self._limit:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"this broker has {self._limit} share sessions already"
            )
        session = ShareSession(key, connection)
        self._sessions[key] = session
        self._of_connection.setdefault(connection, {})[key] = None
        return session

    def go_on(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a request that does not open one; CLOSES is always in turn.

        Raises `KafkaError`: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        if epoch == CLOSES:
            return session
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session epoch is {epoch}, expected {session.epoch}.",
            )
        session.advance()
        return session

    def change(
        self, session: ShareSession, added: Collection[SharedPartition], forgotten: Iterable[SharedPartition]
    ) -> None:
        """Fetch these from now on, and those no more. They may be of topics that this broker does not know yet.

        Raises `KafkaError` SHARE_SESSION_LIMIT_REACHED, and changes nothing.
        """
        if self._sessions.get(session.key) is not session:
            return  # It was ended meanwhile.
        if self._partition_count + len(added) > self._partition_limit:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"the share sessions of this broker have {self._partition_count} partitions, "
                f"and {self._partition_limit} are the most",
            )
        partitions = session.partitions
        before = len(partitions)
        for partition in added:
            partitions.setdefault(partition, None)
        for partition in forgotten:
            partitions.pop(partition, None)
        self._partition_count += len(partitions) - before

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session, if there is one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
            keys = self._of_connection[session.connection]
            del keys[key]
            if not keys:
                del self._of_connection[session.connection]
        return session

    def remove_connection(self, connection: object) -> list[ShareSession]:
        """End the sessions that a connection has opened, which has ended."""
        keys = list(self._of_connection.get(connection, ()))
        return [session for key in keys if (session := self.remove(key)) is not None]
