"""A share partition's state as its leader has read it, and what its next write depends on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafscale.formats.share_start_record import ShareStartRecord
from kafscale.formats.share_state_record import ShareStateRecord
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import ABSENT, Compare, KeyValue


class ShareWriteResult(StrEnum):
    """How a write has ended."""

    WRITTEN = "written"
    """It is durable."""

    FENCED = "fenced"
    """Another broker leads the partition, or has, or a write that this leader had given up came true after all.

    What is in memory is worth nothing any more: a broker that still leads loads again.
    """

    START_CHANGED = "start changed"
    """The group's coordinator has set another start, or deleted it: load again."""


class ShareLoadRefusal(StrEnum):
    """Why there is nothing to load."""

    FENCED = "fenced"
    """The partition's leader is another one than the claim says."""

    NOT_INITIALIZED = "not initialized"
    """The group's coordinator has set no start so far, or has deleted it."""


@dataclass(frozen=True, slots=True)
class Led:
    """A partition that this broker leads: its topic's name, and the revision of its claim (`led_since_revision`)."""

    topic: str
    revision: int


class NextWrite:
    """A write that waits for the one in flight. Those that ask for a later one meanwhile get its result."""

    __slots__ = ("data", "ended")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ended: asyncio.Future[ShareWriteResult] = asyncio.get_running_loop().create_future()

    def end(self, result: ShareWriteResult | Exception) -> None:
        """Notify all that wait for it. No error if it has ended."""
        if self.ended.done():
            return
        if isinstance(result, Exception):
            self.ended.set_exception(result)
            # Its waiters may all have been cancelled: asyncio reports an exception that is never taken.
            self.ended.exception()
        else:
            self.ended.set_result(result)


class OpenShareState:
    """The result of `ShareStateWriter.load`, as later writes change it; belongs to that writer.

    `start`: as the coordinator has set it. `state`: as loaded, None if nothing was written since the start was set.
    `ended`: why nothing can be written any more, None while it can.
    """

    __slots__ = (
        "compares",
        "ended",
        "is_writing",
        "next_write",
        "partition",
        "start",
        "state",
        "state_key",
    )

    def __init__(
        self,
        partition: SharePartitionId,
        compares: "ShareCompares",
        start: ShareStartRecord,
        state: ShareStateRecord | None,
    ) -> None:
        self.partition = partition
        self.compares = compares
        self.start = start
        self.state = state
        self.state_key = keys.share_state(partition)
        self.ended: ShareWriteResult | None = None
        self.is_writing = False
        self.next_write: NextWrite | None = None


@dataclass(frozen=True, slots=True)
class ShareCompares:
    """The conditions of a write: the keys of state, start and leader have these revisions."""

    state: Compare
    start: Compare
    leader: Compare

    def all(self) -> tuple[Compare, ...]:
        """In this order."""
        return (self.state, self.start, self.leader)

    @property
    def keys(self) -> tuple[str, ...]:
        """Of all three."""
        return (self.state.key, self.start.key, self.leader.key)

    def verdict(self, found: Mapping[str, KeyValue], data: bytes) -> tuple[ShareWriteResult, int] | None:
        """How a write of `data` has ended, by what is under the keys now; the revision of the state with it.

        None: it has not taken effect, and may, as long as the state's revision stays. Then another attempt is safe:
        only one of them can.
        """
        state = found.get(self.state.key)
        revision = ABSENT if state is None else state.mod_revision
        if revision != self.state.mod_revision and state is not None and state.value == data:
            # The leader's epoch is in it: no other broker writes the same.
            return ShareWriteResult.WRITTEN, revision
        if not _holds(self.leader, found):
            return ShareWriteResult.FENCED, revision
        if not _holds(self.start, found):
            return ShareWriteResult.START_CHANGED, revision
        if revision != self.state.mod_revision:
            return ShareWriteResult.FENCED, revision
        return None


def by_key(found: Sequence[KeyValue | None]) -> dict[str, KeyValue]:
    """Those that are there."""
    return {item.key: item for item in found if item is not None}


def _holds(compare: Compare, found: Mapping[str, KeyValue]) -> bool:
    item = found.get(compare.key)
    return (ABSENT if item is None else item.mod_revision) == compare.mod_revision
