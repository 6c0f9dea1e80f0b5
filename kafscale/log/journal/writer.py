"""Writes a broker's own journal: an entry for each flush, acknowledged in the order of their sequences.

Format and rules: docs/format/journal.md.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafscale import clocks
from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.formats.journal_entry import EntryHead, EntrySlice, Fence, encode_head
from kafscale.formats.journal_keys import entry_key
from kafscale.journal.own_journal import NEW_JOURNAL, found_fence, found_own, sealed, told_of_end
from kafscale.log.journal.heads import read_head
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.object_store import ObjectReader
from kafscale.objects.request_meter import SharedCost, unshared
from kafscale.ops.journal_metrics import FenceEvent, JournalMetrics
from kafscale.protocol.types import Buffer

MOST_UNRENEWED_MS = 3_600_000
"""A broker whose lease was renewed longer ago acknowledges nothing: fences are kept for 30 days only."""


def _nothing() -> None:
    """For a caller that does not want to know."""


@dataclass(frozen=True, slots=True)
class SliceImage:
    """A partition's part of a flush: its row, whose `start` is not looked at, and the segment's bytes.

    `parts` is empty for a segment that lies in an object of its own.
    """

    row: EntrySlice
    parts: Sequence[Buffer]


class JournalEndedError(KafscaleError):
    """Another broker has ended the journal below this entry: nothing of it counts, and that is certain."""

    def __init__(self, journal_id: str, sequence: int) -> None:
        super().__init__(f"journal {journal_id} was ended before entry {sequence}")


class JournalBrokenError(KafscaleError):
    """An entry below this one was given up, so that it is not known whether this one counts."""

    def __init__(self, journal_id: str, sequence: int) -> None:
        super().__init__(f"journal {journal_id} cannot go on: entry {sequence} was given up")


class JournalTooOldError(JournalBrokenError):
    """The broker's lease was not renewed for so long that the fence that ended the journal may be gone again."""

    def __init__(self, journal_id: str, sequence: int) -> None:
        KafscaleError.__init__(
            self,
            f"entry {sequence} of journal {journal_id} is not acknowledged: the lease of this broker was not renewed "
            f"for more than {MOST_UNRENEWED_MS // 60_000} minutes",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedEntry:
    """An entry whose bytes are final. `starts`: where each slice begins in the object, by topic id and partition.

    `topic_bytes`: the topic and the bytes of each slice in it, which share the entry's price.
    """

    sequence: int
    key: str
    committed_through: int
    parts: Sequence[Buffer]
    starts: Mapping[tuple[uuid.UUID, int], int]
    topic_bytes: Sequence[tuple[str, int]] = ()


class JournalWriter:
    """One journal of this process. `ended` is called once, when another broker has ended it or it cannot go on.

    Its argument: True if what is in flight is known not to count. `unrenewed_ms`: for how long the broker's lease was
    not renewed, by a clock that counts the time in which the machine was suspended. `unended_ms`: the latest time, by
    `steady_ms`, at which no other broker can have ended the journal; None before the first entry.
    """

    def __init__(
        self,
        objects: ObjectReader,
        conditional_put: ConditionalPut,
        retries: StoreRetries,
        namespace: str,
        journal_id: str,
        broker_id: int,
        *,
        now_ms: Callable[[], int],
        ended: Callable[[bool], None],
        unrenewed_ms: Callable[[], int] = lambda: 0,
        steady_ms: Callable[[], int] = clocks.steady_ms,
        shared_cost: SharedCost = unshared,
        metrics: JournalMetrics | None = None,
    ) -> None:
        self._objects = objects
        self._conditional_put = conditional_put
        self._retries = retries
        self._namespace = namespace
        self._journal_id = journal_id
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._ended = ended
        self._unrenewed_ms = unrenewed_ms
        self._steady_ms = steady_ms
        self.unended_ms: int | None = None
        self._shared_cost = shared_cost
        self._metrics = metrics or JournalMetrics()
        self._journal = NEW_JOURNAL
        # Those that are sealed and not known to be committed, or to be refused.
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._given_up: int | None = None
        self._is_over = False

    @property
    def in_flight_count(self) -> int:
        """Entries that are sealed, and not known to be committed or to be refused."""
        return len(self._waiting)

    @property
    def committed_through(self) -> int:
        """The newest committed sequence, -1 for none."""
        return self._journal.committed_through

    def is_refused(self, sequence: int) -> bool:
        """True if a fence is known at this entry, which was sealed, or below it: nothing of it counts."""
        return self._journal.is_fenced and sequence >= self._journal.next_sequence

    async def settled(self) -> None:
        """Wait until it is known of every entry that is sealed by now if it counts, or the journal takes no more."""
        waiting = list(self._waiting.values())
        if waiting:
            await asyncio.wait(waiting)

    def seal(self, images: Sequence[SliceImage]) -> SealedEntry:
        """Make these slices the next entry; it must be put. Their bytes must not change from here on.

        Raises `JournalEndedError` and `JournalBrokenError`: nothing was sealed.
        """
        self._check(self._journal.next_sequence)
        sequence = self._journal.next_sequence
        head, in_order = self._head(sequence, images)
        self._journal = sealed(self._journal)
        self._metrics.entry_slices.observe(len(head.slices))
        encoded = encode_head(head)
        self._waiting[sequence] = asyncio.get_running_loop().create_future()
        return SealedEntry(
            sequence=sequence,
            key=entry_key(self._namespace, self._journal_id, sequence),
            committed_through=head.committed_through,
            parts=[encoded, *(part for image in in_order for part in image.parts)],
            starts={(row.topic_id, row.partition): len(encoded) + row.start for row in head.slices},
            topic_bytes=[(row.topic, row.size_bytes) for row in head.slices if not row.object_key],
        )

    async def put(
        self,
        entry: SealedEntry,
        attempted: Callable[[], None] = _nothing,
        answered: Callable[[], None] = _nothing,
    ) -> None:
        """Put a sealed entry, and return once it is committed. Of several, they return in their order.

        `attempted` is called at each request that puts it. `answered` is called once it is stored, while it may
        still wait for earlier entries.

        Raises `JournalEndedError` when nothing of it counts. After anything else that it raises, a cancellation too,
        the entry may count or not, and the journal takes no more entries: `JournalBrokenError`, or what no retry
        would change.
        """
        committed = self._waiting[entry.sequence]
        started_sec, began_ms = time.perf_counter(), self._steady_ms()
        try:
            await self._put(entry, attempted)
            self._metrics.put.observe(time.perf_counter() - started_sec)
            answered()
            await committed
            self.unended_ms = began_ms if self.unended_ms is None else max(self.unended_ms, began_ms)
            self._metrics.commit.observe(time.perf_counter() - started_sec)
        except JournalEndedError:
            raise
        except BaseException:
            self._give_up(entry.sequence)
            raise
        finally:
            self._waiting.pop(entry.sequence, None)
            # Without a waiter, asyncio would report its exception.
            committed.cancel()

    def _check(self, sequence: int) -> None:
        if self._given_up is not None:
            raise JournalBrokenError(self._journal_id, self._given_up)
        if self._journal.is_fenced:
            raise JournalEndedError(self._journal_id, sequence)

    def _check_fence(self, sequence: int) -> None:
        """After every wait: a fence may have been found below the entry meanwhile."""
        if sequence >= self._journal.next_sequence:
            raise JournalEndedError(self._journal_id, sequence)

    def _head(self, sequence: int, images: Sequence[SliceImage]) -> tuple[EntryHead, list[SliceImage]]:
        """The entry's head, and its slices in their order."""
        in_order = sorted(images, key=lambda image: (image.row.topic_id, image.row.partition))
        rows, start = [], 0
        for image in in_order:
            if image.row.object_key:
                rows.append(image.row.at(0))
            else:
                rows.append(image.row.at(start))
                start += image.row.size_bytes
        head = EntryHead(
            journal_id=self._journal_id,
            broker_id=self._broker_id,
            sequence=sequence,
            committed_through=self._journal.committed_through,
            created_ms=self._now_ms(),
            slices=tuple(rows),
        )
        return head, in_order

    async def _put(self, entry: SealedEntry, attempted: Callable[[], None]) -> None:
        key, sequence = entry.key, entry.sequence
        with self._shared_cost(key, entry.topic_bytes):
            is_ours = await self._conditional_put.put(key, entry.parts, attempted)
        self._check_fence(sequence)
        if is_ours:
            if self._unrenewed_ms() > MOST_UNRENEWED_MS:
                raise JournalTooOldError(self._journal_id, sequence)
            self._journal = found_own(self._journal, sequence)
            # Not at once: this entry's caller, which does not wait yet, would go on before those of earlier entries,
            # which were notified a moment ago and have not had their turn.
            asyncio.get_running_loop().call_soon(self._tell_committed)
            return
        found, _ = await self._retries.until_done(lambda: read_head(self._objects, key), key)
        self._check_fence(sequence)
        if not isinstance(found, Fence):
            raise CorruptDataError(
                key, f"an entry of broker {found.broker_id} with other bytes than were written"
            )
        self._metrics.fences[FenceEvent.FOUND] += 1
        self._journal = found_fence(self._journal, sequence)
        self._refuse()
        raise JournalEndedError(self._journal_id, sequence)

    def told_of_end(self, place: int) -> None:
        """The journal's record says that its fence is there: no entry from there on counts."""
        self._journal = told_of_end(self._journal, place)
        self._refuse()

    def _refuse(self) -> None:
        """Entries from the fence on do not count."""
        for waiting, committed in self._waiting.items():
            if self.is_refused(waiting) and not committed.done():
                committed.set_exception(JournalEndedError(self._journal_id, waiting))
        self._tell_the_end(is_certain=True)

    def _tell_committed(self) -> None:
        """Let those go on whose entries are committed: each of them waits, so they do it in their order."""
        for sequence, committed in self._waiting.items():
            if sequence <= self._journal.committed_through and not committed.done():
                committed.set_result(None)

    def _give_up(self, sequence: int) -> None:
        """Take no more entries: this key's contents are not known, so no later one can be known to be committed."""
        self._tell_the_end(is_certain=False)
        self._given_up = sequence if self._given_up is None else min(self._given_up, sequence)
        for waiting in [one for one in self._waiting if one > sequence]:
            if not self._waiting[waiting].done():
                self._waiting[waiting].set_exception(JournalBrokenError(self._journal_id, sequence))

    def _tell_the_end(self, *, is_certain: bool) -> None:
        if not self._is_over:
            self._is_over = True
            # After those that wait for an entry have heard of it.
            asyncio.get_running_loop().call_soon(self._ended, is_certain)
