"""The end of an action: changes are stored, and answers wait for that. Of consumer groups and of share groups."""

from collections.abc import Iterable, MutableSequence
from typing import Any

from kafscale.groups.effects import Answer, Content, Decided, Heartbeated, Joined, Left, Synced
from kafscale.groups.events import Stored, StoreFailed
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.modern_group import Changes, MemberType, ModernGroup, RecordType
from kafscale.protocol.error_codes import ErrorCode

Out = MutableSequence[Any]
"""The list of effects that an action appends to; each machine has effects of its own."""


def refuse(reply_id: int, code: ErrorCode, message: str, out: Out) -> None:
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


def ask_for_target(group: ModernGroup[MemberType, RecordType], out: Out) -> None:
    """Have the target assignment of the group's epoch computed, after the one that is being computed."""
    if not group.is_assigning:
        group.is_assigning = True
        group.newer_topics = None  # The topics are read from here on.
        out.append(Assign(group.group_epoch))


def store_and_answer(group: ModernGroup[MemberType, RecordType], answers: Iterable[Answer], out: Out) -> None:
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


def stored(group: ModernGroup[MemberType, RecordType], event: Stored, out: Out) -> None:
    """Answer what waited for this."""
    out.extend(group.unstored_answers.pop(event.store_id, ()))


def store_failed(group: ModernGroup[MemberType, RecordType], event: StoreFailed, out: Out) -> None:
    """This broker is fenced: `Unload` follows."""
    refuse_unstored(group.unstored_answers.pop(event.store_id, ()), event.error_code, out)


def refuse_unstored(answers: Iterable[Answer], error_code: ErrorCode, out: Out) -> None:
    """Answer with the error instead: it is not known that the answers are stored."""
    out.extend(Answer(answer.reply_id, failure(answer.content, error_code)) for answer in answers)
