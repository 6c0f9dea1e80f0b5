"""The end of every action: changes are stored, and answers wait for that."""

from collections.abc import Iterable

from kafscale.groups.consumer.consumer_group import AwaitedTarget, Changes, ConsumerGroup
from kafscale.groups.consumer.effects import Assign, Downgraded, StoreChanges
from kafscale.groups.effects import (
    Answer,
    Content,
    Decided,
    Effect,
    Heartbeated,
    Joined,
    Left,
    RebalanceCompleted,
    RebalanceStarted,
    Synced,
)
from kafscale.groups.events import Join
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode

Effects = list[Effect | StoreChanges | Assign | Downgraded]
"""The list that an action appends to."""


def refuse(reply_id: int, code: ErrorCode, message: str, out: Effects) -> None:
    """Answer at once: nothing has changed."""
    out.append(Answer(reply_id, Heartbeated(error_code=code, message=message)))


def failure(content: Content, error_code: ErrorCode) -> Content:
    """The answer with this error to the request that would have got `content`."""
    match content:
        case Heartbeated():
            return Heartbeated(error_code=error_code)
        case Joined(member_id=member_id):
            return Joined(error_code=error_code, member_id=member_id)
        case Synced():
            return Synced(error_code=error_code)
        case Left():
            return Left(error_code)
        case Decided():
            return Decided(error_code)


def raise_epoch(group: ConsumerGroup, reason: str, now_ms: int, out: Effects) -> None:
    """Members, subscriptions or topics are others now: there is to be another target assignment.

    The next heartbeat asks for it, as in Kafka: many changes together cost one computation.
    """
    group.group_epoch += 1
    group.changes.group = True
    if group.rebalance_since_ms is None:
        group.rebalance_since_ms = now_ms
        out.append(RebalanceStarted(reason))
    if group.members:
        return
    group.state_since_ms = now_ms
    group.target = {}
    group.topics = {}
    group.rebalance_since_ms = None


def ask_for_target(group: ConsumerGroup, out: Effects) -> None:
    """Have the target assignment of the group's epoch computed, after the one that is being computed."""
    if not group.is_assigning:
        group.is_assigning = True
        group.newer_topics = None  # The topics are read from here on.
        out.append(Assign(group.group_epoch))


def settle(group: ConsumerGroup, answers: Iterable[Answer], now_ms: int, out: Effects) -> None:
    """Store what has changed, and answer once all that was changed up to now is stored."""
    changes = group.changes
    if changes.members or changes.removed or changes.group:
        group.changes = Changes()
        group.last_store_id += 1
        group.unstored_answers[group.last_store_id] = []
        out.append(
            StoreChanges(
                store_id=group.last_store_id,
                record=group.record() if changes.group else None,
                members=tuple(group.members[one] for one in sorted(changes.members)),
                removed=tuple(sorted(changes.removed)),
            )
        )
    waiting = group.unstored_answers.get(group.last_store_id)
    if waiting is None:
        out.extend(answers)
    else:
        waiting.extend(answers)
    if group.rebalance_since_ms is not None and group.state is GroupState.STABLE:
        out.append(RebalanceCompleted(now_ms - group.rebalance_since_ms))
        group.rebalance_since_ms = None


def refusal_of(awaited: AwaitedTarget, code: ErrorCode, message: str = "") -> Answer:
    """The answer to a request that waited for a target in vain."""
    content = (
        Joined(error_code=code, member_id=awaited.member_id)
        if isinstance(awaited.event, Join)
        else Heartbeated(error_code=code, message=message)
    )
    return Answer(awaited.event.reply_id, content)
