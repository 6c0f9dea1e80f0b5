"""Follows the journals of other brokers for the partitions that consumers read here.

A leader reports its progress in the metadata store, at most every 100 ms; each entry that is new then is read once,
for all partitions. What the record of a partition shows later is the same (docs/format/journal.md).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing

from kafscale.errors import CorruptDataError, StoreError
from kafscale.journal.partition_state import slice_reference, transaction_events
from kafscale.journal.replay import PlacedSlice
from kafscale.log.journal.followed_journal import FollowedJournal, JournalReader, newest_record
from kafscale.log.journal.followers import Followers
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Snapshot
from kafscale.ops.journal_metrics import JournalMetrics
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC = 0.5


ReadAgain = Callable[[Partition], None]


class FollowedJournals:
    """One broker's. `read_again` is called with a partition whose record must be read: an entry of it is gone."""

    def __init__(
        self,
        metadata: MetadataStore,
        reader: JournalReader,
        read_again: ReadAgain,
        metrics: JournalMetrics | None = None,
    ) -> None:
        self._metadata = metadata
        self._reader = reader
        _, self._namespace, _ = reader
        self._read_again = read_again
        self._metrics = metrics or JournalMetrics()
        self._journals: dict[str, FollowedJournal] = {}
        self._tasks = TaskOwner()

    def attach(self, partition: Partition) -> None:
        """Follow the journal that the partition's record names, from its position on; and no other for it."""
        position = partition.record.journal
        self.detach(partition, except_for="" if position is None else position.journal_id)
        if position is None:
            return
        journal = self._journals.get(position.journal_id)
        if journal is None:
            journal = self._journals[position.journal_id] = FollowedJournal(
                self._metadata,
                self._reader,
                position.journal_id,
                position.sequence,
                self._arrived,
                self._metrics,
            )
            self._tasks.spawn(self._follow(journal), f"follow journal {journal.journal_id}")
        if partition not in journal:
            journal.add(partition, position)
        if journal.has_late() and not journal.brings_late_up:
            journal.brings_late_up = True
            self._tasks.spawn(self._bring_late_up(journal), f"read journal {journal.journal_id} again")

    def detach(self, partition: Partition, except_for: str = "") -> None:
        """Follow no journal for the partition, but for this one."""
        for journal in self._journals.values():
            if journal.journal_id != except_for:
                journal.remove(partition)

    async def catch_up(self, partition: Partition, patience_sec: float | None = None) -> None:
        """Apply every slice behind the partition's record that was committed before this call.

        See `FollowedJournal.catch_up`.
        """
        self.attach(partition)
        position = partition.record.journal
        if position is not None:
            journal = self._journals[position.journal_id]
            await journal.catch_up(patience_sec)
            await journal.brought_up(partition)

    async def close(self) -> None:
        """Stop following."""
        await self._tasks.close()

    async def _follow(self, journal: FollowedJournal) -> None:
        key = keys.journal(journal.journal_id)
        try:
            while journal.is_needed():
                try:
                    async with aclosing(self._metadata.watch_key(key)) as events:
                        async for event in events:
                            changes = event.items if isinstance(event, Snapshot) else event.puts_and_deletes
                            record = newest_record(changes)
                            if record is not None:
                                await journal.read(record)
                            if not journal.is_needed():
                                # Before the watch ends: who comes while it does needs a journal that is followed.
                                self._forget(journal)
                                return
                except (StoreError, CorruptDataError) as problem:
                    self._log_failure(journal, problem)
                await asyncio.sleep(_RETRY_DELAY_SEC)
        finally:
            self._forget(journal)

    def _forget(self, journal: FollowedJournal) -> None:
        if self._journals.get(journal.journal_id) is journal:
            del self._journals[journal.journal_id]

    async def _bring_late_up(self, journal: FollowedJournal) -> None:
        try:
            while journal.has_late():
                try:
                    await journal.bring_late_up()
                except (StoreError, CorruptDataError) as problem:
                    self._log_failure(journal, problem)
                    await asyncio.sleep(_RETRY_DELAY_SEC)
        finally:
            journal.brings_late_up = False

    def _log_failure(self, journal: FollowedJournal, problem: Exception) -> None:
        logger.warning(
            "cannot follow a journal, trying again",
            extra={"journal": journal.journal_id, "problem": str(problem)},
        )

    def _arrived(self, journal: FollowedJournal, followers: Followers, slices: Iterable[PlacedSlice]) -> None:
        grown = [
            (partition, self._apply(journal, partition, placed))
            for placed in slices
            for partition in followers.of(placed.slice)
        ]
        # Only now: a fetch of several of these partitions is answered once, with all that is new.
        for partition, size_bytes in grown:
            partition.notify_grown(size_bytes)

    def _apply(self, journal: FollowedJournal, partition: Partition, placed: PlacedSlice) -> int:
        """Add a slice of the partition to it. Returns the bytes that are new."""
        if not partition.is_followed:
            return 0
        reference = slice_reference(self._namespace, journal.journal_id, placed)
        size_bytes = partition.follow_slice(reference, placed.sequence, transaction_events(placed.slice))
        if size_bytes is None:
            self._read_again(partition)
            return 0
        return size_bytes
