"""A client of a share group in a random walk: what it asks, what it believes to have."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafscale.groups.effects import Heartbeated
from kafscale.groups.modern.assignment import TopicIdPartition, partitions_of
from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.groups.share.events import ShareHeartbeatReceived
from kafscale.protocol.error_codes import ErrorCode

_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


@dataclass(slots=True)
class WalkingShareMember:
    """`epoch`: 0 while it is to join. `reply_id`: of the request that it waits for. `has`: what it was given."""

    numbers: Iterator[int]
    member_id: str
    names: frozenset[str]
    epoch: int = JOINS
    needs_full: bool = True
    is_gone: bool = False
    reply_id: int | None = None
    has: frozenset[TopicIdPartition] = field(default=frozenset())

    def next_request(self, now_ms: int) -> ShareHeartbeatReceived | None:
        """Its next heartbeat, unless it waits for an answer or has left."""
        if self.reply_id is not None or self.is_gone:
            return None
        self.reply_id = next(self.numbers)
        return self.request(now_ms, self.epoch)

    def request(self, now_ms: int, epoch: int) -> ShareHeartbeatReceived:
        """A heartbeat at this epoch."""
        return ShareHeartbeatReceived(
            now_ms=now_ms,
            reply_id=self.reply_id or next(self.numbers),
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=self.names if self.needs_full or epoch == JOINS else None,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def leave(self, now_ms: int) -> ShareHeartbeatReceived:
        """Its last heartbeat."""
        self.is_gone, self.reply_id, self.has = True, None, frozenset()
        return self.request(now_ms, LEAVES)

    def answered(self, content: Heartbeated) -> None:
        """The answer that it waits for."""
        self.reply_id = None
        if content.error_code in _JOIN_AGAIN:
            self.epoch, self.has, self.needs_full = JOINS, frozenset(), True
        elif content.error_code is not ErrorCode.NONE:
            self.needs_full = True
        else:
            self.epoch, self.needs_full = content.member_epoch, False
            if content.assignment is not None:
                self.has = frozenset(partitions_of(content.assignment))

    def lose_answer(self) -> None:
        """It waits no longer. Not every client says everything again then."""
        self.reply_id = None
