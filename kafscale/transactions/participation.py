"""The part that a partition's leader, or a group's coordinator, takes in a transaction (KIP-890).

Before the first batch of a transaction in a partition, and before the first offsets of one in a group, the record of
the transaction is asked for: with TV1 whether the partition or group is in it, with TV2 it is added. Any broker does
so by itself, under a compare of the record.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.formats.transaction_record import TransactionTopic
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.transactions.awaited_ends import AwaitedEnds
from kafscale.transactions.decisions import Refuse
from kafscale.transactions.epochs import TV2
from kafscale.transactions.events import Add, ProducerIdAndEpoch, Verify
from kafscale.transactions.record_driver import RecordDriver, StoredRecord

TopicPartition = tuple[str, int]

_FIRST_POLL_SEC: Final = 0.02
_LONGEST_POLL_SEC: Final = 0.1
"""Between two looks at a record that another broker coordinates.

As Kafka's add.partitions.to.txn.retry.backoff.ms and its maximum.
"""


def transaction_topics(
    view: ClusterView, partitions: Iterable[TopicPartition]
) -> tuple[TransactionTopic, ...]:
    """The partitions as a transaction's record has them.

    Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION for one that this broker does not know.
    """
    by_topic: dict[str, set[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, set()).add(index)
    found = []
    for name in sorted(by_topic):
        record = view.topic(name)
        indexes = sorted(by_topic[name])
        if record is None or not 0 <= indexes[0] <= indexes[-1] < record.partition_count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{quoted(name)}' is not there, or has not all of these partitions",
            )
        found.append(TransactionTopic(name, record.topic_id, tuple(indexes)))
    return tuple(found)


class Participation:
    """Verifies and extends transactions for this broker's partitions and groups.

    `known`: the record that this broker remembers as the coordinator, if it is that; `remember` is called with what
    was stored here. `now_ms`: Unix milliseconds.
    """

    def __init__(
        self,
        driver: RecordDriver,
        view: ClusterView,
        now_ms: Callable[[], int],
        ends: AwaitedEnds,
        known: Callable[[str], StoredRecord | None] = lambda transactional_id: None,
        remember: Callable[[str, StoredRecord], None] = lambda transactional_id, stored: None,
    ) -> None:
        self._driver = driver
        self._view = view
        self._now_ms = now_ms
        self._ends = ends
        self._known = known
        self._remember = remember

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        partitions: Sequence[TopicPartition] = (),
        group_id: str | None = None,
        adds: bool,
        knows_abortable: bool = False,
    ) -> None:
        """Return if partitions and group are in the producer's ongoing transaction, or, if `adds`, are from now on.

        `adds`: the client speaks TV2 (Produce 12, TxnOffsetCommit 5). `knows_abortable`: it knows
        TRANSACTION_ABORTABLE (Produce 11, TxnOffsetCommit 4).

        Raises `KafkaError` INVALID_PRODUCER_ID_MAPPING; INVALID_PRODUCER_EPOCH for a producer that is fenced;
        INVALID_TXN_STATE, or TRANSACTION_ABORTABLE if the client knows it, for what is not in the transaction;
        CONCURRENT_TRANSACTIONS while the transaction before is not complete; COORDINATOR_NOT_AVAILABLE if the store
        does not answer in time; UNKNOWN_TOPIC_OR_PARTITION.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        topics = transaction_topics(self._view, partitions)
        groups = () if group_id is None else (group_id,)
        refusal = await (
            self._add(transactional_id, producer, topics, groups)
            if adds
            else self._ask(transactional_id, Verify(producer=producer, topics=topics, groups=groups))
        )
        if refusal is not None:
            raise KafkaError(_code_for_participant(refusal.code, knows_abortable), refusal.message)

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: tuple[TransactionTopic, ...],
        groups: tuple[str, ...],
    ) -> Refuse | None:
        loop = asyncio.get_running_loop()
        deadline = self._ends.deadline()
        poll_sec = _FIRST_POLL_SEC
        while True:
            await self._ends.ended(transactional_id, deadline)
            event = Add(
                now_ms=self._now_ms(),
                producer=producer,
                transaction_version=TV2,
                topics=topics,
                groups=groups,
            )
            refusal = await self._ask(transactional_id, event)
            is_early = refusal is not None and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_early or loop.time() >= deadline:
                return refusal
            if not self._ends.is_ending(transactional_id):
                # Another broker coordinates it: nothing here says when it is complete.
                await asyncio.sleep(poll_sec)
                poll_sec = min(2 * poll_sec, _LONGEST_POLL_SEC)

    async def _ask(self, transactional_id: str, event: Add | Verify) -> Refuse | None:
        applied = await self._driver.apply(transactional_id, event, self._known(transactional_id))
        self._remember(transactional_id, applied.after)
        return applied.result if isinstance(applied.result, Refuse) else None


def _code_for_participant(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """The code that Kafka's AddPartitionsToTxnManager makes of the coordinator's."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
