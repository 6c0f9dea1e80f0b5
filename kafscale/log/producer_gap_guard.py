"""Refused batches of idempotent producers, so that no later batch is stored before one that this broker refused.

Clients send several requests without waiting. If the first is refused because the leader is replaced, or the store
is away, the next may arrive when this broker leads again a moment later. A log that does not know the producer
would take that batch for the producer's first, as Kafka does: the earlier records could never be stored, and
librdkafka reports them as delivered when the later ones are. A log that knows the producer would answer
OUT_OF_ORDER_SEQUENCE_NUMBER, after which librdkafka takes a new producer epoch and sends everything in flight
again, in every partition. In both cases the answer is NOT_LEADER_OR_FOLLOWER instead, after which clients send both
batches again in their order (docs/decisions/0036-first-batches.md).

The earlier batch may also have gone to another broker, which has not answered: the Java client does not wait for it
before it sends new batches to the next leader (KAFKA-14359). So an unknown producer that does not begin at sequence 0
is refused once. Its client then waits for the earlier ones, or has none and sends the same batch again.
"""

from typing import Final

from kafscale.log.producer_state import ProducerStates, UnpublishedBatch
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import MAX_SEQUENCE, BatchHeader

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Refusals of a batch on its arrival after which clients send it again."""

BEGINS_LATER: Final = "this producer is not known here: if it has earlier batches, they are to come first"
OUT_OF_TURN: Final = "an earlier batch of this producer was refused: it is to come first"

# A client with idempotence has five requests in flight at most. So a fifth later one was sent when the refusal was
# known, and the client does not mean to send the refused one again.
MOST_OUT_OF_TURN: Final = 4
REMEMBERED_SEQUENCES: Final = 5
MOST_REMEMBERED: Final = 4096

_HALF: Final = (MAX_SEQUENCE + 1) // 2

TopicPartition = tuple[str, int]


class _Refused:
    """First sequences of a producer's refused batches, in one epoch and partition, in the order of the refusals."""

    __slots__ = ("producer_epoch", "refusals_left", "sequences")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.sequences: tuple[int, ...] = ()
        self.refusals_left = MOST_OUT_OF_TURN

    def add(self, sequence: int) -> None:
        """Add a sequence, unless there are as many as a client has in flight: the oldest are to come first."""
        if sequence not in self.sequences and len(self.sequences) < REMEMBERED_SEQUENCES:
            self.sequences = (*self.sequences, sequence)

    def forget_up_to(self, newest: tuple[int, int] | None) -> None:
        """Remove those that were appended since, by any leader. `newest`: epoch and last sequence of a log."""
        if newest is None or newest[0] < self.producer_epoch:
            return
        epoch, last_sequence = newest
        left = tuple(
            sequence
            for sequence in self.sequences
            if epoch == self.producer_epoch and _is_later(sequence, last_sequence)
        )
        if left != self.sequences:
            self.sequences = left
            # It sends again what was refused.
            self.refusals_left = MOST_OUT_OF_TURN


class ProducerGapGuard:
    """Of all partitions of this broker. The oldest of too many producers are removed, and treated as by Kafka."""

    def __init__(self) -> None:
        self._refused: dict[tuple[TopicPartition, int], _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def refused_on_arrival(self, partition: TopicPartition, header: BatchHeader) -> None:
        """A batch was answered with one of `SENT_AGAIN`."""
        self._remember(partition, header.producer_id, header.producer_epoch, header.base_sequence)

    def refused_unpublished(self, partition: TopicPartition, batch: UnpublishedBatch) -> None:
        """A batch was appended, and its log was closed before it was known to be published.

        A batch whose outcome is in doubt belongs to these, too: if it was published after all, the next leader's
        log knows of it.
        """
        self._remember(partition, batch.producer_id, batch.producer_epoch, batch.first_sequence)

    def _remember(self, partition: TopicPartition, producer_id: int, epoch: int, sequence: int) -> None:
        key = (partition, producer_id)
        refused = self._refused.get(key)
        if refused is None or epoch > refused.producer_epoch:
            refused = _Refused(epoch)
        elif epoch < refused.producer_epoch:
            return
        refused.add(sequence)
        refused.refusals_left = MOST_OUT_OF_TURN
        self._refused.pop(key, None)  # The newest is the last.
        self._refused[key] = refused
        if len(self._refused) > MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def refuses(self, partition: TopicPartition, header: BatchHeader, producers: ProducerStates) -> bool:
        """True if a refused batch of the same producer, which `producers` does not have yet, is to come first.

        True for `MOST_OUT_OF_TURN` batches in a row at most. These count as refused batches, too: the client sends
        the first again, and perhaps new ones, before it receives their refusals.
        """
        key = (partition, header.producer_id)
        refused = self._refused.get(key)
        if refused is None or refused.producer_epoch != header.producer_epoch:
            return False
        refused.forget_up_to(producers.newest_sequence(header.producer_id))
        if not refused.sequences:
            del self._refused[key]
            return False
        if not refused.refusals_left:
            return False
        if not any(_is_later(header.base_sequence, sequence) for sequence in refused.sequences):
            return False
        refused.refusals_left -= 1
        refused.add(header.base_sequence)
        return True

    def refuses_beginning(self, partition: TopicPartition, header: BatchHeader) -> bool:
        """True for the first batch of an unknown producer, unless it is at sequence 0 or was refused before.

        Where as many were refused as a client has in flight, no more are: it gave the earlier ones up.
        """
        if header.base_sequence <= 0:
            return False
        refused = self._refused.get((partition, header.producer_id))
        if refused is not None and refused.producer_epoch == header.producer_epoch:
            sequences = refused.sequences
            if header.base_sequence in sequences or len(sequences) >= REMEMBERED_SEQUENCES:
                return False
        self._remember(partition, header.producer_id, header.producer_epoch, header.base_sequence)
        return True


def _is_later(sequence: int, other: int) -> bool:
    """Sequence numbers go on at 0 after the largest."""
    return 0 < ((sequence - other) & MAX_SEQUENCE) < _HALF
