"""The coordinator's own work, from time to time: time-outs, expiry, and decisions that are not carried out yet."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.features import TRANSACTION_VERSION
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicState
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore
from kafscale.ops.item_failures import ItemFailures
from kafscale.ops.transaction_metrics import TransactionMetrics, TransactionResult
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.owner import TaskOwner
from kafscale.transactions.awaited_markers import AwaitedMarkers
from kafscale.transactions.completer import Completer
from kafscale.transactions.coordinated_shard import CoordinatedShard
from kafscale.transactions.events import Event, Expire, TimePassed
from kafscale.transactions.record_driver import Applied, RecordDriver
from kafscale.transactions.shards import TransactionShards

logger = logging.getLogger(__name__)

LOOK_INTERVAL_SEC: Final = 1.0
_RECHECK_INTERVAL_MS: Final = 10_000
_AT_ONCE: Final = 32


class Upkeep:
    """The clock of the transactions that this broker coordinates. `now_ms`: Unix milliseconds.

    `oldest_ms`: by state of the metric, when the oldest transaction in it began or was decided; 0 without one.
    """

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        driver: RecordDriver,
        shards: TransactionShards,
        completer: Completer,
        awaited: AwaitedMarkers,
        settings: Settings,
        metrics: TransactionMetrics,
        failures: ItemFailures,
        now_ms: Callable[[], int],
    ) -> None:
        self.oldest_ms = {"ongoing": 0, "ending": 0}
        self._store = store
        self._view = view
        self._driver = driver
        self._shards = shards
        self._completer = completer
        self._awaited = awaited
        self._settings = settings
        self._metrics = metrics
        self._failures = failures
        self._now_ms = now_ms
        self._rechecked_ms = 0
        self._tasks = TaskOwner()

    def start(self) -> None:
        """Begin to look."""
        settings, spawn = self._settings, self._tasks.spawn
        interval_sec = settings.transaction_abort_timed_out_interval_ms / 1000
        spawn(self._every(LOOK_INTERVAL_SEC, self.look), "decided transactions")
        spawn(self._every(interval_sec, self.time_out), "transaction time-outs")
        interval_sec = settings.transactional_id_expiry_interval_ms / 1000
        spawn(self._every(interval_sec, self.expire), "transactional id expiry")

    async def _every(self, interval_sec: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_sec)
            try:
                await work()
            except (StoreError, KafkaError) as problem:
                logger.info("looking after transactions later", extra={"problem": quoted(str(problem), 500)})
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(work.__name__, problem)

    # Time-outs and expiry

    async def time_out(self) -> None:
        """Abort the transactions whose time is over, and fence their producers."""
        now_ms = self._now_ms()
        version = max(1, self._view.feature_level(TRANSACTION_VERSION))
        for shard in self._shards.all():
            over = [
                transactional_id
                for transactional_id, seen_ms in shard.ongoing.items()
                if (record := shard.records[transactional_id].record) is not None
                # A leader may have begun it, whose clock is behind.
                and now_ms > max(seen_ms, record.started_ms) + record.timeout_ms
            ]
            event = TimePassed(now_ms=now_ms, transaction_version=version)
            for applied in await self._apply_all(shard, over, event):
                if applied.was_stored:
                    self._metrics.ended[TransactionResult.TIMED_OUT] += 1

    async def expire(self) -> None:
        """Delete the records of transactional ids that were unused for long."""
        now_ms, expiration_ms = self._now_ms(), self._settings.transactional_id_expiration_ms
        for shard in self._shards.all():
            expired = [
                transactional_id
                async for transactional_id, stored in in_turns(list(shard.records.items()))
                if stored.record is not None and now_ms - stored.record.updated_ms >= expiration_ms
            ]
            event = Expire(now_ms=now_ms, expiration_ms=expiration_ms)
            await self._apply_all(shard, expired, event)

    async def _apply_all(
        self, shard: CoordinatedShard, transactional_ids: list[str], event: Event
    ) -> list[Applied]:
        """Apply the event to each; one that fails is reported, and tried again at the next look."""
        done: list[Applied] = []
        for first in range(0, len(transactional_ids), _AT_ONCE):
            part = transactional_ids[first : first + _AT_ONCE]
            results = await asyncio.gather(
                *(self._apply(shard, one, event) for one in part), return_exceptions=True
            )
            for transactional_id, result in zip(part, results, strict=True):
                if isinstance(result, Applied):
                    done.append(result)
                elif isinstance(result, Exception):
                    self._failures.report(quoted(transactional_id), result)
        return done

    async def _apply(self, shard: CoordinatedShard, transactional_id: str, event: Event) -> Applied:
        known = shard.records.get(transactional_id)
        applied = await self._driver.apply(transactional_id, event, known, shard.coordinator_epoch)
        self._shards.accept(shard, transactional_id, applied.after)
        if applied.was_stored:
            logger.info(
                "a transactional id's time is over",
                extra={"transactional_id": quoted(transactional_id), "event": type(event).__name__},
            )
        return applied

    # Decisions

    async def look(self) -> None:
        """Go on with decisions that wait for something that no watch shows, and note the oldest transactions."""
        now_ms = self._now_ms()
        waiting: list[str] = []
        ages: dict[str, list[int]] = {"ongoing": [0], "ending": [0]}
        for shard in self._shards.all():
            for transactional_id in list(shard.ending):
                record = shard.records[transactional_id].record
                assert record is not None
                ages["ending"].append(record.updated_ms)
                self._completer.advance(shard, transactional_id)
                if now_ms - record.updated_ms >= _RECHECK_INTERVAL_MS:
                    waiting.append(transactional_id)
            for transactional_id in shard.ongoing:
                record = shard.records[transactional_id].record
                assert record is not None
                ages["ongoing"].append(record.started_ms)
        for state, began in ages.items():
            self.oldest_ms[state] = min((at for at in began if at > 0), default=0)
        await self._drop_deleted()
        if now_ms - self._rechecked_ms >= _RECHECK_INTERVAL_MS:
            self._rechecked_ms = now_ms
            await self._completer.recheck(waiting)

    async def _drop_deleted(self) -> None:
        """Delete the marker keys of partitions whose topic is gone: no leader will."""
        suspects: dict[str, list[str]] = {}
        for shard in self._shards.all():
            for transactional_id in list(shard.ending):
                for topic, key in self._gone_in_view(shard, transactional_id):
                    suspects.setdefault(topic, []).append(key)
        for topic, marker_keys in suspects.items():
            await self._drop_of_topic(topic, marker_keys)

    def _gone_in_view(self, shard: CoordinatedShard, transactional_id: str) -> Iterable[tuple[str, str]]:
        """Topic and marker key of partitions that are not in the view as they are in the transaction."""
        record = shard.records[transactional_id].record
        assert record is not None
        awaited = set(self._awaited.keys_of(transactional_id)[1])
        for topic in record.topics:
            seen = self._view.topic(topic.name)
            if seen is not None and seen.topic_id == topic.topic_id:
                continue
            for index in topic.partitions:
                key = keys.partition_marker(topic.name, index, record.producer_id)
                if key in awaited:
                    yield f"{topic.name}/{topic.topic_id}", key

    async def _drop_of_topic(self, topic: str, marker_keys: list[str]) -> None:
        name, topic_id = topic.split("/")
        found = await self._store.get(keys.topic(name))
        if not _is_gone(found, topic_id):
            return
        of_topic = Compare(keys.topic(name), ABSENT if found is None else found.mod_revision)
        for key in marker_keys:
            marker = await self._store.get(key)
            if marker is not None:
                await self._store.transact([of_topic, Compare(key, marker.mod_revision)], [Delete(key)])

    async def close(self) -> None:
        """Stop looking."""
        await self._tasks.close()


def _is_gone(found: KeyValue | None, topic_id: str) -> bool:
    """True if the topic of this id is not there any more, or is being deleted with its records."""
    if found is None:
        return True
    try:
        record = decode_topic_record(found.key, found.value)
    except CorruptDataError:
        return False
    return str(record.topic_id) != topic_id or record.state is TopicState.DELETING
