"""Transactional batches before their append: does the partition belong to the producer's transaction? (KIP-890)

The leader asks once for each transaction and partition, before the first batch. Once a batch of the transaction is in
the log, the transaction cannot end without a marker there, and later batches need no question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.transactions.verifications import Verification, Verifications
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.record_batch import BatchHeader
from kafscale.transactions.participation import Participation

FIRST_VERSION_WITH_ADDING: Final = 12
"""Of Produce: the leader adds the partition to the transaction (KIP-890, part 2)."""

_FIRST_VERSION_WITH_ABORTABLE: Final = 11

# A producer has one transaction at a time: more than one marker while a question is answered is rare.
_QUESTIONS_AFTER_MARKERS: Final = 2
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

_OF_ONE_PARTITION: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class TransactionalBatch:
    """The first batch of a transaction in a partition, and the question that it waits for.

    `refusal`: why it may not be appended; None before the answer, and when it may.
    """

    place: TopicPartition
    header: BatchHeader
    partition: Partition
    verification: Verification
    refusal: KafkaError | None = None


def needs_verification(log: PartitionLog, header: BatchHeader) -> bool:
    """True if the log has nothing of the transaction, and would append the batch: a retry it only answers."""
    if log.producers.open_transactions.get(header.producer_id) == header.producer_epoch:
        return False
    verdict = log.producers.check(
        header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
    )
    return verdict is ErrorCode.NONE


def check_transactional(header: BatchHeader, transactional_id: str | None, may_write: bool) -> None:
    """Raises `KafkaError` for a transactional batch that no question is worth.

    `may_write`: the client may use its transactional id.
    """
    if transactional_id is None or not may_write:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
        )
    if header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


async def verify(
    participation: Participation,
    verifications: Verifications,
    transactional_id: str,
    version: int,
    batches: Sequence[TransactionalBatch],
) -> None:
    """Ask for the partitions of one request, all of a producer at once. Refused batches get their `refusal`.

    Asks again where a marker was handled meanwhile: with TV2 a client begins its next transaction while the marker
    of the one before is still awaited, and the answer is about the next one.
    """
    await _ask(participation, transactional_id, version, batches)
    for _ in range(_QUESTIONS_AFTER_MARKERS):
        again = [one for one in batches if one.refusal is None and not one.verification.is_valid]
        for one in again:
            place = one.verification.place
            verifications.end(one.verification)
            one.verification = verifications.begin(*place)
        await _ask(participation, transactional_id, version, again)


async def _ask(
    participation: Participation, transactional_id: str, version: int, batches: Sequence[TransactionalBatch]
) -> None:
    by_producer: dict[tuple[int, int], list[TransactionalBatch]] = {}
    for one in batches:
        by_producer.setdefault((one.header.producer_id, one.header.producer_epoch), []).append(one)
    for of_producer in by_producer.values():
        await _verify(participation, transactional_id, version, of_producer)


async def _verify(
    participation: Participation, transactional_id: str, version: int, asked: Sequence[TransactionalBatch]
) -> None:
    """Ask for all partitions at once, and if they are refused for each alone: it may be because of one of them."""
    header = asked[0].header
    try:
        await participation.check(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            partitions=list(dict.fromkeys(one.place for one in asked)),
            adds=version >= FIRST_VERSION_WITH_ADDING,
            knows_abortable=version >= _FIRST_VERSION_WITH_ABORTABLE,
        )
    except KafkaError as problem:
        if len(asked) > 1 and problem.code in _OF_ONE_PARTITION:
            for one in asked:
                await _verify(participation, transactional_id, version, [one])
        else:
            code, message = _code_for_producer(problem.code, version), problem.message
            for one in asked:
                one.refusal = KafkaError(code, message)


def begin(
    verifications: Verifications, place: TopicPartition, header: BatchHeader, partition: Partition
) -> TransactionalBatch:
    """The question about a batch. It must be ended, by `ended`."""
    return TransactionalBatch(
        place, header, partition, verifications.begin(partition.number, header.producer_id)
    )


def ended(verifications: Verifications, one: TransactionalBatch) -> None:
    """The question was answered. Raises `KafkaError` unless the batch may be appended now."""
    verifications.end(one.verification)
    if one.refusal is not None:
        raise one.refusal
    if not one.verification.is_valid:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction was ended meanwhile")


def _code_for_producer(code: ErrorCode, version: int) -> ErrorCode:
    """As Kafka's ReplicaManager: older clients do not send again after the coordinator's retriable errors."""
    if code in _RETRIABLE or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_WITH_ADDING
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
