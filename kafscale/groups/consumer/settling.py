"""The end of every action: changes are stored, and answers wait for that."""

from collections.abc import Iterable

from kafscale.groups.consumer.consumer_group import AwaitedTarget, ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.effects import (
    Answer,
    Effect,
    Heartbeated,
    Joined,
    RebalanceCompleted,
    RebalanceStarted,
)
from kafscale.groups.events import Join
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.settling import store_and_answer
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode

Effects = list[Effect | StoreChanges | Assign | Downgraded]
"""The list that an action appends to."""


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


def settle(group: ConsumerGroup, answers: Iterable[Answer], now_ms: int, out: Effects) -> None:
    """Store what has changed, and answer once all that was changed up to now is stored."""
    store_and_answer(group, answers, out)
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


def supersede(group: ConsumerGroup, member_id: str, out: Effects) -> None:
    """A member waits for one answer: it has given up the one before, and what it said then may not hold any more.

    What it had at that time, above all: it may have been told more since.
    """
    earlier = group.awaited_targets.take(member_id)
    if earlier is not None:
        given_up = ErrorCode.COORDINATOR_NOT_AVAILABLE
        out.append(refusal_of(earlier, given_up, "the member has asked again since"))
