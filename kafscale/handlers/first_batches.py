"""A producer's first batches in a partition: no later one is taken before them when they were refused.

A leader that knows nothing of a producer takes any sequence number from it, as Kafka does, since it may have
forgotten the producer. But clients send several requests without waiting. When the first is refused because the
leader is replaced, or the store is away, and the next arrives when this broker leads again, that one would be taken
for the beginning. The client's earlier records could never be stored any more; and librdkafka takes the success of
the later request to say that the earlier ones were stored, too, and reports them as delivered.
"""

from typing import Final

from kafscale.metadata.leadership import TopicPartition
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import MAX_SEQUENCE, BatchHeader

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals after which clients send the same batch again."""

OUT_OF_TURN: Final = "an earlier batch of this producer is not stored yet: it is to come first"

# A client with idempotence has five requests in flight at most. So a fifth later one was sent when the refusal was
# known, and the client does not mean to send the first again.
MOST_OUT_OF_TURN: Final = 4
MOST_REMEMBERED: Final = 4096

_HALF: Final = (MAX_SEQUENCE + 1) // 2


class _First:
    """The earliest batch of a producer that is not known to be stored."""

    __slots__ = ("producer_epoch", "refusals_left", "sequence")

    def __init__(self, producer_epoch: int, sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        self.refusals_left = MOST_OUT_OF_TURN


class FirstBatches:
    """Of all partitions, remembered until they are stored. The oldest of too many are forgotten."""

    def __init__(self) -> None:
        self._firsts: dict[tuple[TopicPartition, int], _First] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def came(self, partition: TopicPartition, header: BatchHeader) -> None:
        """The batch is the first of its producer here, or was refused by something of `SENT_AGAIN`."""
        key = (partition, header.producer_id)
        first = self._firsts.pop(key, None)
        if first is None or first.producer_epoch != header.producer_epoch or not _is_later(header, first):
            first = _First(header.producer_epoch, header.base_sequence)
        first.refusals_left = MOST_OUT_OF_TURN
        self._firsts[key] = first
        if len(self._firsts) > MOST_REMEMBERED:
            del self._firsts[next(iter(self._firsts))]

    def refuses(self, partition: TopicPartition, header: BatchHeader) -> bool:
        """Whether the batch, of a producer that the log does not know, is not the one to come first.

        The answer is yes for `MOST_OUT_OF_TURN` batches in a row at most.
        """
        key = (partition, header.producer_id)
        first = self._firsts.get(key)
        if first is None or first.producer_epoch != header.producer_epoch or not _is_later(header, first):
            return False
        if not first.refusals_left:
            del self._firsts[key]
            return False
        first.refusals_left -= 1
        return True

    def stored(self, partition: TopicPartition, producer_id: int) -> None:
        """The producer's first batch is published: the log knows the producer from now on."""
        self._firsts.pop((partition, producer_id), None)


def _is_later(header: BatchHeader, first: _First) -> bool:
    """Sequence numbers go on at 0 after the largest."""
    return 0 < ((header.base_sequence - first.sequence) & MAX_SEQUENCE) < _HALF
