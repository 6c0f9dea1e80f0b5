"""The events of a partition's leadership, and the effects that the table answers them with. Neither has I/O."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.protocol.error_codes import ErrorCode


class Event(StrEnum):
    """Something that happened to the partition, or that its broker decided."""

    ELECTED = "Elected"
    """The claim was made: the store has the next epoch and this broker's owner key."""

    NOT_ELECTED = "NotElected"
    """The claim has ended otherwise: another broker owns the partition, the lease has ended, or the topic is gone."""

    LOADED = "Loaded"
    """The checkpoint that the record names has been read, or it names none."""

    RESIGN = "Resign"
    """Another broker is to lead, or the lease has ended."""

    DRAIN_TIMED_OUT = "DrainTimedOut"
    """Accepted batches could not be published in the time that a hand-over may take."""

    DRAINED = "Drained"
    """No flush is in flight any more, and none will begin: the resignation is complete."""

    FLUSH_STOPPED = "FlushStopped"
    """A flush ended before its entry was known to be committed."""

    FENCED = "Fenced"
    """Another leader wrote the record, or another broker has ended this one's journal."""

    FLUSH_FAILED = "FlushFailed"
    """A defect, or the journal cannot go on: what was in flight may count or not."""

    TOPIC_DELETED = "TopicDeleted"
    """The topic is deleted, or being deleted. One of its name may be created at once."""

    SETTLED = "Settled"
    """The flushes of a deleted topic's partition have ended, or were cancelled."""


class Act(StrEnum):
    """An effect without parameters. The driver carries them out in their order, with nothing in between."""

    SERVE = "serve the partition here"
    STOP_SERVING = "serve the partition no longer"
    END_CLAIM = "notify requests that wait for the claim"
    OPEN_LOG = "open the log"
    COUNT_ELECTED = "count an election"
    COUNT_HANDED_OVER = "count a hand-over"
    COUNT_LOST = "count a loss"
    LOOK_AGAIN = "let the keeper look at the partition"
    NOTIFY_READERS = "notify waiting readers"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Close the log, if it was opened, and refuse everything that waits in it, once.

    What is in an entry in flight is the exception: its outcome is unknown, and its waiters receive that. `{topic}`
    in the message stands for the topic's quoted name.
    """

    error_code: ErrorCode
    message: str


Effect = Act | Refuse
