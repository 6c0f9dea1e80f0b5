"""The end of an action of a share group, and the beginning of another target assignment."""

from collections.abc import Iterable

from kafscale.groups.effects import Answer, Effect, Heartbeated
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.settling import ask_for_target, store_and_answer
from kafscale.groups.share.effects import InitializeStarts
from kafscale.groups.share.share_group import AwaitedTarget, ShareGroup
from kafscale.protocol.error_codes import ErrorCode

Effects = list[Effect | StoreChanges | Assign | InitializeStarts]
"""The list that an action appends to."""


def raise_epoch(group: ShareGroup, now_ms: int) -> None:
    """Members, subscriptions or topics are others now: there is to be another target assignment.

    The next heartbeat asks for it, as in Kafka: many changes together cost one computation.
    """
    group.group_epoch += 1
    group.changes.group = True
    if not group.members:
        group.state_since_ms = now_ms
        group.target = {}
        group.topics = {}
        group.forget_starts()


def members_removed(group: ShareGroup, now_ms: int, out: Effects) -> None:
    """There is to be another target. `settle` must follow."""
    raise_epoch(group, now_ms)
    if group.awaited_targets:
        ask_for_target(group, out)


def settle(group: ShareGroup, answers: Iterable[Answer], out: Effects) -> None:
    """Store what has changed, and answer once all that was changed up to now is stored."""
    store_and_answer(group, answers, out)


def refusal_of(awaited: AwaitedTarget, code: ErrorCode, message: str = "") -> Answer:
    """The answer to a heartbeat that waited for a target in vain."""
    return Answer(awaited.event.reply_id, Heartbeated(error_code=code, message=message))
