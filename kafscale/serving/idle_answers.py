"""Answers to idle consumers: the same bytes answer the same request while nothing changes.

A consumer at the end of its partitions sends the same Fetch again and again, but for the correlation id. Its
answer depends on the request's body, the states of its partitions, the partition that a name stands for here, and
the view's topics, leaders and brokers. An answer is used only while all of these are as they were when it was made.
"""

import struct
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cluster.view import ClusterView
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.metadata.model import NO_BROKER
from kafscale.protocol.fetch import FetchRequest
from kafscale.protocol.types import Buffer
from kafscale.serving.leader_epoch import NO_EPOCH
from kafscale.serving.partition_fetch import PartitionFetch

# librdkafka begins each Fetch with another partition: a consumer of a hundred has a hundred requests.
LIMIT_BYTES = 32 * 1024 * 1024
# A larger request is too expensive to keep.
BODY_MAX_BYTES = 64 * 1024
# Of an answer: its objects, and those of each partition.
_ANSWER_BYTES = 600
_PARTITION_BYTES = 16

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 4

Asked = tuple[int, bytes]
"""A request: the version, and the body without the header."""

_states: Final = attrgetter("revision", "record.log_end_offset")
_states_and_leadership: Final = attrgetter("revision", "record.log_end_offset", "is_led")


class IdleAnswer:
    """One request's answer. Immutable; `IdleAnswers.is_current` says whether it is still valid.

    A partition's revision and its end stand for its record, which may be large: records, and the markers that move
    the last stable offset, are published without a new revision, and everything else changes with one.
    """

    __slots__ = (
        "_after",
        "_before",
        "_read_state",
        "_states",
        "asked",
        "changes",
        "follows",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "reads_committed",
        "topics",
    )

    def __init__(
        self, asked: Asked, fetch: FetchRequest, partitions: tuple[Partition, ...], changes: int, frame: bytes
    ) -> None:
        self.asked = asked
        self.max_wait_ms = fetch.max_wait_ms
        self.min_bytes = fetch.min_bytes
        self.reads_committed = fetch.reads_committed
        self.partitions = partitions
        self.topics = frozenset([partition.id.topic for partition in partitions])
        self.changes = changes
        self.follows = any(partition.is_followed for partition in partitions)
        # With a rack, the broker that consumers are sent to depends on the leader, too.
        self._read_state = _states_and_leadership if fetch.rack_id else _states
        self._states = list(map(self._read_state, partitions))
        self._before = frame[:_CORRELATION_ID_AT]
        self._after = frame[_CORRELATION_ID_AT + _CORRELATION_ID.size :]

    @property
    def size_bytes(self) -> int:
        """About how much memory the answer takes."""
        kept_bytes = len(self.asked[1]) + len(self._after)
        return _ANSWER_BYTES + kept_bytes + _PARTITION_BYTES * len(self.partitions)

    def has_same_states(self) -> bool:
        """True if its partitions are as they were."""
        return list(map(self._read_state, self.partitions)) == self._states

    def frame(self, correlation_id: int) -> bytes:
        """The whole reply to a request with this correlation id."""
        return self._before + _CORRELATION_ID.pack(correlation_id) + self._after


def _ignore(_: IdleAnswer) -> None:
    return


class IdleAnswers:
    """The answers of all connections; the least recently used are evicted first."""

    def __init__(self, view: ClusterView, logs: LogManager, limit_bytes: int = LIMIT_BYTES) -> None:
        self._view = view
        self._logs = logs
        self._limit_bytes = limit_bytes
        self._answers = self._none()
        self._changes = self.changes

    def _none(self) -> ByteLimitedLru[Asked, IdleAnswer]:
        return ByteLimitedLru(self._limit_bytes, _ignore)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def changes(self) -> int:
        """Grows whenever the view or the readable partitions change: both counts only grow, and so does their sum."""
        return self._view.change_count + self._logs.readable_changes

    def find(self, asked: Asked) -> IdleAnswer | None:
        """The answer to this request if it is still valid."""
        changes = self.changes
        if changes != self._changes:
            # None of them will be valid again, and they refer to partitions that may be gone.
            self._answers = self._none()
            self._changes = changes
            return None
        answer = self._answers.get(asked)
        if answer is None or self.is_current(answer):
            return answer
        self.forget(answer)
        return None

    def is_current(self, answer: IdleAnswer) -> bool:
        """True if a request that arrived now would get this answer after its wait."""
        return (
            answer.changes == self.changes
            and answer.has_same_states()
            # Each read of a followed partition is noted: it is followed as long as it is read.
            and (not answer.follows or self._are_readable(answer.partitions))
        )

    def _are_readable(self, partitions: Iterable[Partition]) -> bool:
        readable = self._logs.readable
        return all(readable(one.id.topic, one.id.index) is one for one in partitions)

    def forget(self, answer: IdleAnswer) -> None:
        """Remove an answer that is not valid any more."""
        self._answers.remove(answer.asked)

    def keep(
        self,
        asked: Asked,
        changes: int,
        fetch: FetchRequest,
        fetches: Sequence[PartitionFetch],
        buffers: Sequence[Buffer],
    ) -> None:
        """Keep the answer of a fetch that waited for `max_wait_ms`, if the same request would get it again.

        `changes`: its value when the request was read and its partitions were found.
        """
        if changes != self.changes or len(buffers) != 1:
            return
        partitions = tuple([one.partition for one in fetches if one.partition is not None and _is_idle(one)])
        if len(partitions) == len(fetches):
            answer = IdleAnswer(asked, fetch, partitions, changes, bytes(buffers[0]))
            self._answers.put(asked, answer, answer.size_bytes)


def _is_idle(fetch: PartitionFetch) -> bool:
    """True if the partition's part of the answer says only that there is nothing after the offset."""
    partition, wanted = fetch.partition, fetch.wanted
    return (
        partition is not None
        and not fetch.error_code
        and fetch.preferred_read_replica == NO_BROKER
        and wanted.fetch_offset == fetch.end_offset
        and wanted.current_leader_epoch in (NO_EPOCH, partition.record.leader_epoch)
    )
