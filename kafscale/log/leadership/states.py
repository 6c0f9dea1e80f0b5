"""The states of a partition at this broker, and the rights that each of them gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """The state of a partition in one term of its leader, or while it is followed."""

    FOLLOWING = "Following"
    """Another broker leads, and this one reads what it publishes. An election makes a new partition."""

    CLAIMING = "Claiming"
    """The claim is in flight. Other brokers, and their clients, may know its outcome before this broker does."""

    OPENING = "Opening"
    """Elected. The log opens with the first request that needs it, once the checkpoint has been read."""

    LEADING = "Leading"
    """The log is open: appends are accepted, sealed and published."""

    RESIGNING = "Resigning"
    """Accepts nothing more, and commits what it accepted, so that the next leader has it."""

    HALTED = "Halted"
    """Seals nothing more: what is in flight may not be committed, and nothing behind it may be. About to close."""

    DELETING = "Deleting"
    """The topic was deleted. Not served any more; flushes in flight may still end, and no other begins."""

    CLOSED = "Closed"
    """All waiters have their answers. What is still in flight for the partition changes nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The rights of a partition in a state.

    `leads`: this broker acts as the leader, as to open the log, to merge, to expire and to delete. `appends`: batches
    are accepted. `seals`: its buffers may go into an entry. `publishes`: a write of the record may begin. `follows`:
    a record that another broker wrote may be taken over.
    """

    leads: bool = False
    appends: bool = False
    seals: bool = False
    publishes: bool = False
    follows: bool = False


RIGHTS: Final[Mapping[State, Rights]] = MappingProxyType(
    {
        State.FOLLOWING: Rights(follows=True),
        State.CLAIMING: Rights(),
        State.OPENING: Rights(leads=True),
        State.LEADING: Rights(leads=True, appends=True, seals=True, publishes=True),
        State.RESIGNING: Rights(seals=True, publishes=True),
        State.HALTED: Rights(publishes=True),
        State.DELETING: Rights(publishes=True),
        State.CLOSED: Rights(),
    }
)
