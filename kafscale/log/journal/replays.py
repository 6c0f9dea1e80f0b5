"""Reads what journals have behind the records of partitions, once for all partitions; ends those journals first."""

import logging
import time
from collections.abc import Callable, Iterable

from kafscale.cluster.view import ClusterView
from kafscale.errors import KafscaleError
from kafscale.formats.journal_keys import journal_prefix, parse_entry_key
from kafscale.formats.journal_record import decode_journal_record
from kafscale.formats.partition_record import JournalPosition
from kafscale.formats.topic_record import decode_broker_record
from kafscale.journal.replay import Replay
from kafscale.log.journal.broker_journal import BrokerJournals
from kafscale.log.journal.end_journal import JournalEnding, JournalUnknownError, StoredJournal
from kafscale.log.journal.heads import read_heads
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import ItemFailures
from kafscale.ops.journal_metrics import FenceEvent, JournalMetrics

logger = logging.getLogger(__name__)


class JournalReplays:
    """For the claims of one broker. A journal that cannot be read is reported; its partitions are not claimed."""

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        view: ClusterView,
        namespace: str,
        broker_id: int,
        own: BrokerJournals,
        retries: StoreRetries,
        now_ms: Callable[[], int],
        failures: ItemFailures,
        metrics: JournalMetrics | None = None,
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._view = view
        self._namespace = namespace
        self._broker_id = broker_id
        self._own = own
        self._retries = retries
        self._now_ms = now_ms
        self._failures = failures
        self._metrics = metrics or JournalMetrics()

    @property
    def namespace(self) -> str:
        """See `Journals`."""
        return self._namespace

    def position(self, topic: str) -> JournalPosition | None:
        """See `Journals`."""
        record = self._view.topic(topic)
        if record is None:
            return None
        journal = self._own.current
        return JournalPosition(
            journal_id=journal.journal_id, sequence=journal.applied_through, topic_id=record.topic_id
        )

    async def replays(self, positions: Iterable[JournalPosition]) -> dict[str, Replay]:
        """The replays of the journals that these positions name, by journal id.

        A journal whose broker is not registered any more is ended. That of a live one is left out: its partitions
        have a leader, or will be released. Retries while a store is away.
        """
        lowest: dict[str, int] = {}
        for position in positions:
            known = lowest.get(position.journal_id, position.sequence)
            lowest[position.journal_id] = min(known, position.sequence)
        if not lowest:
            return {}
        live = await self.live() - {self._own.current.journal_id}
        replays = {}
        for journal_id, sequence in sorted(lowest.items()):
            if journal_id in live:
                continue
            try:
                started_sec = time.perf_counter()
                replays[journal_id] = await self._replay(journal_id, sequence + 1)
                self._metrics.replays.observe(time.perf_counter() - started_sec)
            except KafscaleError as problem:
                self._failures.report(f"journal {journal_id}", problem)
        return replays

    async def live(self) -> set[str]:
        """The journals of the brokers that are registered. Retries while the metadata store is away."""
        return await self._retries.until_done(self._live, keys.BROKERS)

    async def _live(self) -> set[str]:
        snapshot = await self._metadata.range(keys.BROKERS)
        return {decode_broker_record(item.key, item.value).journal_id for item in snapshot.items}

    async def end(self, journal_id: str) -> int:
        """End a journal whose broker is not registered any more; returns the fence's place. See `JournalEnding`."""
        ending = JournalEnding(
            self._objects,
            StoredJournal(self._metadata, journal_id),
            self._namespace,
            journal_id,
            self._broker_id,
            self._retries,
            self._now_ms,
        )
        end = await ending.end()
        self._metrics.fences[FenceEvent.WRITTEN] += ending.written
        return end

    async def _replay(self, journal_id: str, first: int) -> Replay:
        current = self._own.current
        if journal_id == current.journal_id:
            end = await current.settled() + 1
        else:
            end = await self.end(journal_id)
        there = await self._retries.until_done(
            lambda: self._entries_there(journal_id, first, end), journal_prefix(self._namespace, journal_id)
        )
        heads = await read_heads(self._objects, self._namespace, journal_id, there, self._retries)
        self._metrics.replayed_entries += len(heads)
        progress = await self._retries.until_done(
            lambda: self._progress(journal_id), keys.journal(journal_id)
        )
        return Replay(journal_id, heads, first=first, end=end, progress=progress)

    async def _entries_there(self, journal_id: str, first: int, end: int) -> list[int]:
        prefix = journal_prefix(self._namespace, journal_id)
        parsed = [parse_entry_key(info.key) async for info in self._objects.list(prefix)]
        return [key.sequence for key in parsed if key is not None and first <= key.sequence < end]

    async def _progress(self, journal_id: str) -> int:
        key = keys.journal(journal_id)
        found = await self._metadata.get(key)
        if found is None:
            raise JournalUnknownError(journal_id)
        return decode_journal_record(key, found.value).progress
