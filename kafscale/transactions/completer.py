"""Carries decisions out: puts the marker keys that did not fit beside the decision, and completes the transaction.

Theory of operation. A decided record is advanced by one task at a time, from what this broker knows of it: are its
marker keys not all put, it puts them; are they all gone, it stores that the transaction is complete. Whatever fails
is begun again by the next look (`upkeep.py`), here or at the coordinator that follows: each step may be repeated.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from kafscale.errors import StoreError
from kafscale.formats.transaction_record import TransactionRecord
from kafscale.metadata import keys
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import Compare, MetadataStore, Put, read_many
from kafscale.metadata.write_batch import MAX_TRANSACTION_BYTES, Write, request_bytes
from kafscale.ops.item_failures import ItemFailures
from kafscale.ops.transaction_metrics import TransactionMetrics
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.owner import TaskOwner
from kafscale.transactions.awaited_markers import AwaitedMarkers
from kafscale.transactions.coordinated_shard import CoordinatedShard
from kafscale.transactions.events import MarkersGone, MarkersStored
from kafscale.transactions.markers import PREPARING, marker_keys, marker_puts
from kafscale.transactions.record_driver import RecordDriver, StoredRecord
from kafscale.transactions.shards import TransactionShards

logger = logging.getLogger(__name__)

_HALF_OF_A_TRANSACTION: Final = MAX_TRANSACTION_BYTES // 2


class Completer:
    """The decided transactions that this broker coordinates. `now_ms`: Unix milliseconds."""

    def __init__(
        self,
        store: MetadataStore,
        writes: SharedWrites,
        driver: RecordDriver,
        shards: TransactionShards,
        awaited: AwaitedMarkers,
        metrics: TransactionMetrics,
        failures: ItemFailures,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._writes = writes
        self._driver = driver
        self._shards = shards
        self._awaited = awaited
        self._metrics = metrics
        self._failures = failures
        self._now_ms = now_ms
        self._tasks = TaskOwner()
        self._advancing: set[str] = set()

    async def follow(self, prefix: str) -> None:
        """Watch the marker keys below a prefix, and complete what they end. Raises `StoreError`."""
        async with aclosing(self._store.watch(prefix)) as events:
            async for event in events:
                for transactional_id in self._awaited.apply(prefix, event):
                    self._look_up_and_advance(transactional_id)

    def _look_up_and_advance(self, transactional_id: str) -> None:
        try:
            shard = self._shards.shard(transactional_id)
        except KafkaError:
            return
        self.advance(shard, transactional_id)

    def record_changed(self, shard: CoordinatedShard, transactional_id: str) -> None:
        """Take in a new record: wait for its markers, or no longer."""
        stored = shard.records.get(transactional_id)
        record = None if stored is None else stored.record
        if stored is None or record is None or record.state not in PREPARING:
            self._awaited.forget(transactional_id)
            return
        if record.markers_stored:
            self._awaited.begin(transactional_id, marker_keys(record), stored.mod_revision)
        self.advance(shard, transactional_id)

    def advance(self, shard: CoordinatedShard, transactional_id: str) -> None:
        """Do what can be done with a decided transaction, in a task, unless one does it already."""
        if transactional_id in self._advancing or self._next_step(shard, transactional_id) is None:
            return
        self._advancing.add(transactional_id)
        self._tasks.spawn(self._advance(shard, transactional_id), "end of a transaction")

    def _next_step(self, shard: CoordinatedShard, transactional_id: str) -> StoredRecord | None:
        """The record if something can be done with it now."""
        stored = shard.records.get(transactional_id)
        record = None if stored is None else stored.record
        if record is None or record.state not in PREPARING:
            return None
        return stored if not record.markers_stored or self._awaited.is_done(transactional_id) else None

    async def _advance(self, shard: CoordinatedShard, transactional_id: str) -> None:
        try:
            while (stored := self._next_step(shard, transactional_id)) is not None:
                assert stored.record is not None
                if stored.record.markers_stored:
                    if not await self._complete(shard, transactional_id, stored, stored.record):
                        return
                elif not await self._put_markers(shard, transactional_id, stored, stored.record):
                    return
        except (KafkaError, StoreError) as problem:
            logger.info(
                "a transaction is carried out later",
                extra={"transactional_id": quoted(transactional_id), "problem": quoted(str(problem), 500)},
            )
        except Exception as problem:  # noqa: BLE001 - reported; the others are served
            self._failures.report(quoted(transactional_id), problem)
        finally:
            # Nothing is awaited between the last look and here.
            self._advancing.discard(transactional_id)

    async def _complete(
        self, shard: CoordinatedShard, transactional_id: str, stored: StoredRecord, record: TransactionRecord
    ) -> bool:
        now_ms = self._now_ms()
        applied = await self._driver.apply(
            transactional_id, MarkersGone(now_ms=now_ms), stored, only_to_known=True
        )
        if applied.was_stored:
            self._metrics.completion.observe(max(0, now_ms - record.updated_ms) / 1000)
        return self._accept(shard, transactional_id, stored, applied.after)

    async def _put_markers(
        self, shard: CoordinatedShard, transactional_id: str, stored: StoredRecord, record: TransactionRecord
    ) -> bool:
        compare = Compare(keys.transaction(transactional_id), stored.mod_revision)
        puts = marker_puts(transactional_id, record, shard.coordinator_epoch, stored.mod_revision)
        for part in _parts(puts, self._store.max_operations):
            result = await self._writes.write(Write((compare,), part))
            if not result.succeeded:
                return False  # Another coordinator was faster: the watch shows its record.
        applied = await self._driver.apply(transactional_id, MarkersStored(), stored, only_to_known=True)
        is_news = self._accept(shard, transactional_id, stored, applied.after)
        # Some may have been dealt with before the record said that all were put.
        await self.recheck([transactional_id])
        return is_news

    def _accept(
        self, shard: CoordinatedShard, transactional_id: str, before: StoredRecord, after: StoredRecord
    ) -> bool:
        """Take in what was stored; False if nothing changed, so that the next look is not made at once."""
        self._shards.accept(shard, transactional_id, after)
        return shard.records.get(transactional_id) is not before

    async def recheck(self, transactional_ids: Iterable[str]) -> None:
        """Read the marker keys that these transactions wait for. Raises `StoreError`."""
        wanted = [
            (key, transactional_id, revision)
            for transactional_id in transactional_ids
            for revision, awaited in (self._awaited.keys_of(transactional_id),)
            for key in awaited
        ]
        for first in range(0, len(wanted), self._store.max_operations):
            part = wanted[first : first + self._store.max_operations]
            found = await read_many(self._store, [key for key, _, _ in part])
            for key, transactional_id, revision in part:
                if key not in found and self._awaited.found_gone(transactional_id, revision, [key]):
                    self._look_up_and_advance(transactional_id)

    async def close(self) -> None:
        """Stop; the next coordinator goes on."""
        await self._tasks.close()


def _parts(puts: Sequence[Put], max_operations: int) -> Iterable[tuple[Put, ...]]:
    """The puts, as many at a time as fit into a transaction of the store."""
    part: list[Put] = []
    size_bytes = 0
    for put in puts:
        put_bytes = request_bytes([put])
        if part and (len(part) == max_operations or size_bytes + put_bytes > _HALF_OF_A_TRANSACTION):
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(put)
        size_bytes += put_bytes
    if part:
        yield tuple(part)
