"""The shards of transactional ids that this broker coordinates: those whose groups it coordinates.

The owner keys are claimed for the groups (`kafscale/groups/shards.py`); the view shows them. A shard's records are
read by a watch, which also shows what other brokers write: leaders and group coordinators add to transactions of TV2.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.topic_record import decode_group_shard_record
from kafscale.formats.transaction_record import decode_transaction_record
from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, KeyValue, MetadataStore, Snapshot
from kafscale.ops.item_failures import ItemFailures
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns
from kafscale.transactions.coordinated_shard import CoordinatedShard
from kafscale.transactions.record_driver import StoredRecord

logger = logging.getLogger(__name__)

_RETRY_SEC: Final = 0.5

RecordListener = Callable[[CoordinatedShard, str], None]
"""Called with a transactional id whose record is new, changed or gone."""


class TransactionShards:
    """Shards by number. `on_record` is called after each change, `on_loaded` when a shard was read as a whole."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        broker_id: int,
        on_record: RecordListener,
        on_loaded: Callable[[CoordinatedShard], None],
        failures: ItemFailures,
        now_ms: Callable[[], int],
        *,
        retry_sec: float = _RETRY_SEC,
    ) -> None:
        self._store = store
        self._view = view
        self._broker_id = broker_id
        self._on_record = on_record
        self._on_loaded = on_loaded
        self._failures = failures
        self._now_ms = now_ms
        self._retry_sec = retry_sec
        self._shards: dict[int, CoordinatedShard] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()
        self._is_stopping = False
        view.subscribe_coordinators(self._reconsider)

    def start(self) -> None:
        """Read the shards that this broker coordinates already."""
        for number in range(keys.GROUP_SHARD_COUNT):
            self._reconsider(number)

    async def loaded(self) -> None:
        """Wait until every shard that this broker coordinates has been read."""
        while any(not shard.is_loaded for shard in self._shards.values()):
            self._loaded.clear()
            await self._loaded.wait()

    def _reconsider(self, number: int) -> None:
        is_ours = self._view.coordinator(number) == self._broker_id and not self._is_stopping
        if is_ours and number not in self._shards:
            shard = self._shards[number] = CoordinatedShard(number, self._broker_id, self._now_ms)
            self._tasks[number] = asyncio.create_task(self._follow(shard), name=f"transactions {number}")
        elif not is_ours and number in self._shards:
            self._drop(number)

    def _drop(self, number: int) -> None:
        shard, task = self._shards.pop(number), self._tasks.pop(number)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()
        self._loaded.set()
        for transactional_id in list(shard.records):
            shard.remove(transactional_id, shard.records[transactional_id].mod_revision)
            self._on_record(shard, transactional_id)

    async def _follow(self, shard: CoordinatedShard) -> None:
        """Keep the shard's records equal to the store's."""
        while True:
            try:
                await self._read_epoch(shard)
                async with aclosing(self._store.watch(keys.transactions(shard.number))) as events:
                    async for event in events:
                        await self._apply(shard, event)
            except StoreError as problem:
                logger.warning("the watch of transactions broke, beginning it again: %s", problem)
            except Exception as problem:  # noqa: BLE001 - reported; the others are served
                self._failures.report(f"shard {shard.number}", problem)
            await asyncio.sleep(self._retry_sec)

    async def _read_epoch(self, shard: CoordinatedShard) -> None:
        found = await self._store.get(keys.group_shard(shard.number))
        if found is not None:
            shard.coordinator_epoch = decode_group_shard_record(found.key, found.value).coordinator_epoch

    async def _apply(self, shard: CoordinatedShard, event: Snapshot | Changes) -> None:
        if isinstance(event, Changes):
            for change in event.puts_and_deletes:
                self._take(shard, change, event.revision)
            return
        async for item in in_turns(event.items):
            self._take(shard, item, event.revision)
        present = [one for item in event.items if (one := _id_of(item.key)) is not None]
        for transactional_id in shard.retain(present, event.revision):
            self._on_record(shard, transactional_id)
        shard.is_loaded = True
        self._loaded.set()
        self._on_loaded(shard)

    def _take(self, shard: CoordinatedShard, change: KeyValue | Delete, revision: int) -> None:
        transactional_id = _id_of(change.key)
        if transactional_id is None:
            return
        if isinstance(change, Delete):
            # Of a batch of transactions this is the newest one's revision: a record that was put again follows in it.
            is_news = shard.remove(transactional_id, revision)
        else:
            try:
                record = decode_transaction_record(change.key, change.value)
            except CorruptDataError as problem:
                self._failures.report(quoted(change.key), problem)
                # Requests for it read the store, and say so.
                is_news = shard.remove(transactional_id, revision)
            else:
                is_news = shard.accept(transactional_id, StoredRecord(record, change.mod_revision))
        if is_news:
            self._on_record(shard, transactional_id)

    def accept(self, shard: CoordinatedShard, transactional_id: str, stored: StoredRecord) -> None:
        """Take in a record that this broker wrote or read itself."""
        if stored.record is None or self._shards.get(shard.number) is not shard:
            return
        if shard.accept(transactional_id, stored):
            self._on_record(shard, transactional_id)

    def shard(self, transactional_id: str) -> CoordinatedShard:
        """The shard of the transactional id. Raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        shard = self._shards.get(keys.shard_of(transactional_id))
        if shard is None or self._is_stopping:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker coordinates this transactional id")
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transactions are being loaded")
        return shard

    def known(self, transactional_id: str) -> StoredRecord | None:
        """The record as this broker knows it, None if it does not coordinate the transactional id."""
        shard = self._shards.get(keys.shard_of(transactional_id))
        return None if shard is None else shard.records.get(transactional_id)

    def remember(self, transactional_id: str, stored: StoredRecord) -> None:
        """Take in a record that was stored or read here, if this broker coordinates the transactional id."""
        shard = self._shards.get(keys.shard_of(transactional_id))
        if shard is not None and shard.is_loaded:
            self.accept(shard, transactional_id, stored)

    def all(self) -> Iterator[CoordinatedShard]:
        """The shards that are loaded."""
        return (shard for shard in tuple(self._shards.values()) if shard.is_loaded)

    def all_loaded(self) -> list[CoordinatedShard]:
        """Every shard. Raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if self._is_stopping:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "this broker is stopping")
        if any(not shard.is_loaded for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transactions are being loaded")
        return list(self._shards.values())

    def refuse_requests(self) -> None:
        """Answer later requests with NOT_COORDINATOR: clients look for the coordinator again."""
        self._is_stopping = True

    async def close(self) -> None:
        """Stop the watches."""
        self._is_stopping = True
        tasks = [*self._tasks.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._shards.clear()


def _id_of(key: str) -> str | None:
    """The transactional id of a record's key; None for a key that no broker writes."""
    try:
        transactional_id = keys.transactional_id(key)
    except IndexError:
        return None
    return transactional_id if keys.transaction(transactional_id) == key else None
