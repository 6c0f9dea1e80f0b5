"""Leadership of one partition as a table: which event leads from which state to which, and with what effects.

Theory of operation. Each claim of a partition begins a term: a `PartitionLeadership` that lives until it is closed.
The next claim begins another. Its driver (log/led_partitions.py) applies events and carries out the effects at once,
in their order, with nothing in between. Nothing here waits, reads a clock or knows of a store: what takes time (to
read a checkpoint, to drain, to settle) is done by the driver, and its end is an event. What may be done at a moment
is the state's right (states.py), which the write path asks for before each step: so a batch is accepted only by a
leader, and a closed log publishes nothing, whatever is still in flight for it.

`TABLE` and `RIGHTS` are all there is: docs/cluster.md is drawn from them, and the property test walks them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kafscale.log.leadership.events import Act, Effect, Event, Refuse
from kafscale.log.leadership.states import RIGHTS, Rights, State
from kafscale.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table. `meaning`: for the docs."""

    to: State
    effects: tuple[Effect, ...]
    meaning: str


_REPLACED = Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads this partition")
_DEFECT = Refuse(ErrorCode.KAFKA_STORAGE_ERROR, "the records could not be stored")
_RESIGNED = Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker is to lead this partition")
_DELETED = Refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic {topic} was deleted")


def _lost(refuse: Refuse, meaning: str) -> Row:
    effects = (refuse, Act.STOP_SERVING, Act.COUNT_LOST, Act.LOOK_AGAIN, Act.NOTIFY_READERS)
    return Row(State.CLOSED, effects, meaning)


_LOST = {
    Event.FENCED: _lost(_REPLACED, "lost: waiters receive NOT_LEADER_OR_FOLLOWER"),
    Event.FLUSH_FAILED: _lost(_DEFECT, "closed, to be claimed again: waiters receive KAFKA_STORAGE_ERROR"),
}
_HANDED_OVER = Row(
    State.CLOSED,
    (Act.STOP_SERVING, Act.COUNT_HANDED_OVER, _RESIGNED, Act.NOTIFY_READERS),
    "handed over: what is not published receives NOT_LEADER_OR_FOLLOWER, and another broker may claim",
)
_TOPIC_GONE = Row(State.DELETING, (Act.STOP_SERVING,), "not served any more; flushes in flight may end")


def _ended_while_deleting(refuse: Refuse) -> Row:
    answer = refuse.error_code.name
    return Row(State.CLOSED, (refuse, Act.NOTIFY_READERS), f"waiters receive {answer}")


_LATE_READERS = Row(State.CLOSED, (Act.NOTIFY_READERS,), "readers that came since are notified, too")

ROWS: Final[Mapping[tuple[State, Event], Row]] = MappingProxyType(
    {
        (State.CLAIMING, Event.ELECTED): Row(
            State.OPENING,
            (Act.SERVE, Act.END_CLAIM, Act.COUNT_ELECTED),
            "led from now on; requests that waited for the claim go on",
        ),
        (State.CLAIMING, Event.NOT_ELECTED): Row(
            State.CLOSED, (Act.END_CLAIM,), "requests that waited for the claim are refused"
        ),
        (State.CLAIMING, Event.TOPIC_DELETED): Row(
            State.CLOSED,
            (Act.END_CLAIM,),
            "the same; an election that becomes known later changes nothing: it may be the deleted topic's",
        ),
        (State.OPENING, Event.LOADED): Row(State.LEADING, (Act.OPEN_LOG,), "the log is open"),
        (State.OPENING, Event.RESIGN): Row(
            State.RESIGNING, (), "nothing was accepted: there is nothing to drain"
        ),
        (State.OPENING, Event.TOPIC_DELETED): _TOPIC_GONE,
        (State.LEADING, Event.RESIGN): Row(State.RESIGNING, (), "accepts nothing more, and drains"),
        (State.LEADING, Event.FLUSH_STOPPED): Row(State.HALTED, (), "seals nothing more"),
        **{(State.LEADING, event): row for event, row in _LOST.items()},
        (State.LEADING, Event.TOPIC_DELETED): _TOPIC_GONE,
        (State.RESIGNING, Event.DRAINED): _HANDED_OVER,
        (State.RESIGNING, Event.DRAIN_TIMED_OUT): Row(
            State.HALTED, (), "seals nothing more; flushes in flight are cancelled"
        ),
        (State.RESIGNING, Event.FLUSH_STOPPED): Row(State.HALTED, (), "seals nothing more"),
        **{(State.RESIGNING, event): row for event, row in _LOST.items()},
        (State.RESIGNING, Event.TOPIC_DELETED): _TOPIC_GONE,
        (State.HALTED, Event.DRAINED): _HANDED_OVER,
        **{(State.HALTED, event): row for event, row in _LOST.items()},
        (State.HALTED, Event.TOPIC_DELETED): _TOPIC_GONE,
        (State.DELETING, Event.SETTLED): _ended_while_deleting(_DELETED),
        (State.DELETING, Event.DRAINED): _ended_while_deleting(_RESIGNED),
        (State.DELETING, Event.FENCED): _ended_while_deleting(_REPLACED),
        (State.DELETING, Event.FLUSH_FAILED): _ended_while_deleting(_DEFECT),
        (State.CLOSED, Event.DRAINED): _LATE_READERS,
        (State.CLOSED, Event.SETTLED): _LATE_READERS,
    }
)
"""Every cell in which something happens."""

TABLE: Final[Mapping[tuple[State, Event], Row]] = MappingProxyType(
    {
        (state, event): ROWS.get(
            (state, event), Row(state, (), "nothing: too early, too late, or said before")
        )
        for state in State
        for event in Event
    }
)


class PartitionLeadership:
    """One term, from the claim to the close; or a partition that is followed."""

    __slots__ = ("rights", "state")

    def __init__(self, state: State = State.CLAIMING) -> None:
        self.state = state
        self.rights: Rights = RIGHTS[state]

    def apply(self, event: Event) -> tuple[Effect, ...]:
        """Move to the state after `event`; returns what is to be done now. Every state has a row for every event."""
        row = TABLE[self.state, event]
        self.state = row.to
        self.rights = RIGHTS[row.to]
        return row.effects
