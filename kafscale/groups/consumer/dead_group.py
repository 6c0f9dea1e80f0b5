"""Requests to a consumer group that is deleted, or moved to another coordinator: clients look for it again."""

from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived
from kafscale.groups.consumer.settling import Effects
from kafscale.groups.effects import Answer, Decided, Heartbeated, Joined, Left, Synced
from kafscale.groups.events import Commit, Heartbeat, Join, Leave, Remove, Sync
from kafscale.protocol.error_codes import ErrorCode

_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def refuse_member(group: ConsumerGroup, event: ConsumerHeartbeatReceived, out: Effects) -> None:
    """A member of the consumer protocol."""
    out.append(Answer(event.reply_id, Heartbeated(error_code=_GONE)))


def refuse(group: ConsumerGroup, event: Commit | Remove | Heartbeat, out: Effects) -> None:
    """A commit, a deletion, or a heartbeat of the classic protocol."""
    out.append(Answer(event.reply_id, Decided(_GONE)))


def refuse_join(group: ConsumerGroup, event: Join, out: Effects) -> None:
    """A join of the classic protocol."""
    out.append(Answer(event.reply_id, Joined(error_code=_GONE, member_id=event.member_id)))


def refuse_sync(group: ConsumerGroup, event: Sync, out: Effects) -> None:
    """As `refuse_join`."""
    out.append(Answer(event.reply_id, Synced(error_code=_GONE)))


def refuse_leave(group: ConsumerGroup, event: Leave, out: Effects) -> None:
    """As `refuse_join`."""
    out.append(Answer(event.reply_id, Left(_GONE)))
