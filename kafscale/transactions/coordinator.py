"""The transaction coordinator: finds the shard of a request, and has the record decided on, stored and answered."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.formats.features import TRANSACTION_VERSION
from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT
from kafscale.ops.transaction_metrics import TransactionMetrics, TransactionResult
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings, variable_of
from kafscale.tasks.in_turns import in_turns
from kafscale.transactions.awaited_ends import AwaitedEnds
from kafscale.transactions.coordinated_shard import CoordinatedShard
from kafscale.transactions.decisions import Refuse, Reply
from kafscale.transactions.events import Add, End, Event, InitProducer, ProducerIdAndEpoch
from kafscale.transactions.participation import TopicPartition, transaction_topics
from kafscale.transactions.record_driver import Applied, RecordDriver, StoredRecord
from kafscale.transactions.shard_owner import ShardOwner
from kafscale.transactions.shards import TransactionShards

MAX_TRANSACTIONAL_ID_BYTES: Final = 4096
"""A key of the metadata store and each marker has it. Kafka has no limit of its own."""

_TV1: Final = 1


def check_transactional_id(transactional_id: str | None) -> str:
    """The transactional id. Raises `KafkaError` INVALID_REQUEST for an empty one, as Kafka does, or a long one."""
    if not transactional_id or len(transactional_id.encode()) > MAX_TRANSACTIONAL_ID_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id has 1 to {MAX_TRANSACTIONAL_ID_BYTES} bytes, not those of "
            f"'{quoted(transactional_id or '')}'",
        )
    return transactional_id


class TransactionCoordinator:
    """The transactional ids whose shards this broker coordinates.

    Every method raises `KafkaError` INVALID_REQUEST for an empty or long transactional id, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, and COORDINATOR_NOT_AVAILABLE if the store does not answer or the record cannot be
    read. `now_ms`: Unix milliseconds.
    """

    def __init__(
        self,
        shards: TransactionShards,
        driver: RecordDriver,
        view: ClusterView,
        settings: Settings,
        metrics: TransactionMetrics,
        now_ms: Callable[[], int],
        ends: AwaitedEnds,
    ) -> None:
        self._shards = shards
        self._ends = ends
        self._driver = driver
        self._view = view
        self._settings = settings
        self._metrics = metrics
        self._now_ms = now_ms

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """InitProducerId. `expected`: the producer that the client has been (KIP-360).

        Raises INVALID_TRANSACTION_TIMEOUT; PRODUCER_FENCED; CONCURRENT_TRANSACTIONS while a transaction is being
        ended, also one that this call has fenced; POLICY_VIOLATION for one transactional id too many.
        """
        check_transactional_id(transactional_id)
        longest_ms = self._settings.transaction_max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {timeout_ms} ms is not between 1 and {longest_ms}",
            )
        shard = self._shards.shard(transactional_id)
        self._check_room(shard, transactional_id)
        event = InitProducer(
            now_ms=self._now_ms(),
            timeout_ms=timeout_ms,
            transaction_version=self._finalized_version(),
            expected=expected,
        )
        applied = await self._apply(shard, transactional_id, event)
        if applied.was_stored and _state(applied) is TransactionState.PREPARE_ABORT:
            self._metrics.ended[TransactionResult.FENCED] += 1
        return _answered(applied)

    def _finalized_version(self) -> int:
        return max(_TV1, self._view.feature_level(TRANSACTION_VERSION))

    def _check_room(self, shard: CoordinatedShard, transactional_id: str) -> None:
        share = self._settings.transactional_ids_max // keys.GROUP_SHARD_COUNT
        if transactional_id not in shard.records and len(shard.records) >= share:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"there are as many transactional ids as {variable_of('transactional_ids_max')} allows",
            )

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> None:
        """AddPartitionsToTxn of a client.

        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, UNKNOWN_TOPIC_OR_PARTITION, and
        UNKNOWN_SERVER_ERROR for a transaction that is too large for its record.
        """
        check_transactional_id(transactional_id)
        shard = self._shards.shard(transactional_id)
        topics = transaction_topics(self._view, partitions)
        shard = await self._begin(shard, transactional_id)
        event = Add(now_ms=self._now_ms(), producer=producer, transaction_version=_TV1, topics=topics)
        _answered(await self._apply(shard, transactional_id, event, shard.owner))

    async def add_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> None:
        """AddOffsetsToTxn. Raises as `add_partitions`, without UNKNOWN_TOPIC_OR_PARTITION."""
        check_transactional_id(transactional_id)
        shard = await self._begin(self._shards.shard(transactional_id), transactional_id)
        event = Add(now_ms=self._now_ms(), producer=producer, transaction_version=_TV1, groups=(group_id,))
        _answered(await self._apply(shard, transactional_id, event, shard.owner))

    async def _begin(self, shard: CoordinatedShard, transactional_id: str) -> CoordinatedShard:
        """Wait for the end of the transaction before; returns the shard of now. Raises NOT_COORDINATOR."""
        if not self._ends.is_ending(transactional_id):
            return shard
        await self._ends.ended(transactional_id, self._ends.deadline())
        return self._shards.shard(transactional_id)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, transaction_version: int
    ) -> ProducerIdAndEpoch:
        """EndTxn: returns when the decision is stored, with the producer that a client of TV2 is from now on.

        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, and CONCURRENT_TRANSACTIONS for a
        repetition before the transaction is complete.
        """
        check_transactional_id(transactional_id)
        shard = self._shards.shard(transactional_id)
        event = End(
            now_ms=self._now_ms(),
            producer=producer,
            commit=commit,
            transaction_version=transaction_version,
        )
        # With TV2 the epoch says which transaction is meant.
        owner = shard.owner if transaction_version == _TV1 else None
        applied = await self._apply(shard, transactional_id, event, owner)
        if applied.was_stored:
            self._metrics.ended[TransactionResult.COMMITTED if commit else TransactionResult.ABORTED] += 1
        return _answered(applied)

    async def _apply(
        self, shard: CoordinatedShard, transactional_id: str, event: Event, owner: ShardOwner | None = None
    ) -> Applied:
        known = shard.records.get(transactional_id, StoredRecord(None, ABSENT))
        applied = await self._driver.apply(transactional_id, event, known, shard.coordinator_epoch, owner)
        self._shards.accept(shard, transactional_id, applied.after)
        return applied

    def describe(self, transactional_id: str) -> TransactionRecord:
        """DescribeTransactions. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        check_transactional_id(transactional_id)
        stored = self._shards.shard(transactional_id).records.get(transactional_id)
        if stored is None or stored.record is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"there is no transactional id '{quoted(transactional_id)}'",
            )
        return stored.record

    async def transactions(self) -> Sequence[tuple[str, TransactionRecord]]:
        """ListTransactions: every transactional id that this broker coordinates, with its record."""
        return [
            (transactional_id, stored.record)
            for shard in self._shards.all_loaded()
            async for transactional_id, stored in in_turns(list(shard.records.items()))
            if stored.record is not None
        ]


def _state(applied: Applied) -> TransactionState | None:
    return None if applied.after.record is None else applied.after.record.state


def _answered(applied: Applied) -> ProducerIdAndEpoch:
    match applied.result:
        case Refuse(code, message):
            raise KafkaError(code, message)
        case Reply(producer):
            return producer
        case unexpected:
            raise AssertionError(f"{unexpected} answers no request")
