"""Writes a broker's own journal: an entry for each flush, acknowledged in the order of their sequences.

Format and rules: docs/format/journal.md.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.formats.journal_entry import EntryHead, EntrySlice, Fence, encode_head
from kafscale.formats.journal_keys import entry_key
from kafscale.journal.own_journal import NEW_JOURNAL, found_fence, found_own, sealed
from kafscale.log.journal.heads import read_head
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.object_store import ObjectReader
from kafscale.protocol.types import Buffer


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


class JournalWriter:
    """One journal of this process. `ended` is called once, when another broker has ended it or it cannot go on."""

    def __init__(
        self,
        objects: ObjectReader,
        conditional_put: ConditionalPut,
        retries: StoreRetries,
        namespace: str,
        journal_id: str,
        broker_id: int,
        *,
        in_flight: int,
        now_ms: Callable[[], int],
        ended: Callable[[], None],
    ) -> None:
        self._objects = objects
        self._conditional_put = conditional_put
        self._retries = retries
        self._namespace = namespace
        self._journal_id = journal_id
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._ended = ended
        self._places = asyncio.Semaphore(in_flight)
        self._journal = NEW_JOURNAL
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._given_up: int | None = None
        self._is_over = False

    @property
    def committed_through(self) -> int:
        """The newest committed sequence, -1 for none."""
        return self._journal.committed_through

    async def write(self, images: Sequence[SliceImage]) -> int:
        """Write an entry of these slices; returns its sequence once it is committed.

        The images' bytes must not change until this returns or raises. Raises `JournalEndedError` when nothing of it
        counts. After anything else that it raises, a cancellation too, the entry may count or not, and the journal
        takes no more entries: `JournalBrokenError`, or what no retry would change.
        """
        async with self._places:
            self._check(self._journal.next_sequence)
            sequence = self._journal.next_sequence
            parts = self._sealed_parts(sequence, images)
            self._journal = sealed(self._journal)
            committed = asyncio.get_running_loop().create_future()
            self._waiting[sequence] = committed
            try:
                await self._put(sequence, parts)
                await committed
            except JournalEndedError:
                raise
            except BaseException:
                self._give_up(sequence)
                raise
            finally:
                self._waiting.pop(sequence, None)
                # Without anybody who waits for it, asyncio would report its exception.
                committed.cancel()
            return sequence

    def _check(self, sequence: int) -> None:
        if self._given_up is not None:
            raise JournalBrokenError(self._journal_id, self._given_up)
        if self._journal.is_fenced:
            raise JournalEndedError(self._journal_id, sequence)

    def _check_fence(self, sequence: int) -> None:
        """After every wait: a fence may have been found below the entry meanwhile."""
        if sequence >= self._journal.next_sequence:
            raise JournalEndedError(self._journal_id, sequence)

    def _sealed_parts(self, sequence: int, images: Sequence[SliceImage]) -> list[Buffer]:
        """The entry's bytes, with its slices in their order."""
        in_order = sorted(images, key=lambda image: (image.row.topic_id, image.row.partition))
        rows, start = [], 0
        for image in in_order:
            if image.row.object_key:
                rows.append(replace(image.row, start=0))
            else:
                rows.append(replace(image.row, start=start))
                start += image.row.size_bytes
        head = EntryHead(
            journal_id=self._journal_id,
            broker_id=self._broker_id,
            sequence=sequence,
            committed_through=self._journal.committed_through,
            created_ms=self._now_ms(),
            slices=tuple(rows),
        )
        return [encode_head(head), *(part for image in in_order for part in image.parts)]

    async def _put(self, sequence: int, parts: list[Buffer]) -> None:
        key = entry_key(self._namespace, self._journal_id, sequence)
        is_ours = await self._conditional_put.put(key, parts)
        self._check_fence(sequence)
        if is_ours:
            self._journal = found_own(self._journal, sequence)
            for waiting in [one for one in self._waiting if one <= self._journal.committed_through]:
                if not self._waiting[waiting].done():
                    self._waiting[waiting].set_result(None)
            return
        found, _ = await self._retries.until_done(lambda: read_head(self._objects, key), key)
        self._check_fence(sequence)
        if not isinstance(found, Fence):
            raise CorruptDataError(
                key, f"an entry of broker {found.broker_id} with other bytes than were written"
            )
        self._journal = found_fence(self._journal, sequence)
        for waiting in [one for one in self._waiting if one > sequence]:
            if not self._waiting[waiting].done():
                self._waiting[waiting].set_exception(JournalEndedError(self._journal_id, waiting))
        self._tell_the_end()
        raise JournalEndedError(self._journal_id, sequence)

    def _give_up(self, sequence: int) -> None:
        """What lies under an entry's key is not known, so that no later one can ever be known to be committed."""
        self._tell_the_end()
        self._given_up = sequence if self._given_up is None else min(self._given_up, sequence)
        for waiting in [one for one in self._waiting if one > sequence]:
            if not self._waiting[waiting].done():
                self._waiting[waiting].set_exception(JournalBrokenError(self._journal_id, sequence))

    def _tell_the_end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended()
