"""Gaining partitions: a new leader epoch in the partition's record and the leader's key, in one transaction."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kafscale.cluster.claims import Claim, Claims, Holding
from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import encode_leader_record
from kafscale.metadata import keys
from kafscale.metadata.model import LeaderRecord
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.ops.item_failures import ItemFailures

# More epochs than any client asks for; without a limit the record would grow with every change of leader.
REMEMBERED_EPOCHS = 128
# From so many on it is cheaper to read every record than to ask for each of them.
_MANY = 512

TopicPartition = tuple[str, int]
"""A topic's name and the partition's number."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A partition that this broker leads now, as its record and its leader key stand at `revision`."""

    topic: str
    index: int
    record: PartitionRecord
    revision: int


def next_epoch(record: PartitionRecord) -> PartitionRecord:
    """The record under its next leader, whose epoch starts at the log end offset."""
    epoch = record.leader_epoch + 1
    # As in Kafka's epoch cache: an epoch under which nothing was written leaves no entry behind.
    kept = [entry for entry in record.epochs if entry.start_offset < record.log_end_offset]
    started = EpochStart(epoch, record.log_end_offset)
    return replace(record, leader_epoch=epoch, epochs=(*kept[1 - REMEMBERED_EPOCHS :], started))


class Leadership:
    """The partitions that one broker leads, under the lease that `lease` tells."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        lease: Callable[[], int],
        retry_delay_sec: float = 0.2,
        failures: ItemFailures | None = None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._claims = Claims(store, lease, self._next_record, retry_delay_sec, failures)

    def _next_record(self, key: str, value: bytes | None) -> tuple[bytes, bytes] | None:
        if value is None:
            return None  # No such partition, or its topic is being deleted.
        record = next_epoch(decode_partition_record(key, value))
        leader = LeaderRecord(broker_id=self._broker_id, leader_epoch=record.leader_epoch)
        return encode_partition_record(record), encode_leader_record(leader)

    async def claim(
        self,
        partitions: Iterable[TopicPartition],
        tell: Callable[[Claimed], None] = lambda claimed: None,
    ) -> list[Claimed]:
        """Lead those partitions that have a record and no leader; returns what this broker gained.

        `tell` is told of each as soon as it is gained: clients may know of it before the last one is. Tries
        again while the store is away. Raises `LeaseEndedError`.
        """
        claims = [_claim(topic, index) for topic, index in partitions]
        known = await self._records() if len(claims) >= _MANY else None
        gained: list[Claimed] = []

        def take(holding: Holding) -> None:
            gained.append(_claimed(holding))
            tell(gained[-1])

        await self._claims.gain(claims, known, take)
        return gained

    async def _records(self) -> dict[str, KeyValue] | None:
        try:
            snapshot = await self._store.range(keys.PARTITIONS)
        except (StoreUnavailableError, StoreIndeterminateError):
            return None
        return {item.key: item for item in snapshot.items}

    async def release(self, revisions: dict[TopicPartition, int]) -> None:
        """Let others lead what this broker gained at these revisions; what it leads no longer is left alone."""
        await self._claims.give_up({keys.leader(*partition): at for partition, at in revisions.items()})

    async def release_strays(self, partitions: Iterable[TopicPartition]) -> None:
        """Let others lead partitions that the store says this broker leads, although it does not."""
        await self._claims.give_up_strays(keys.leader(*partition) for partition in partitions)


def _claim(topic: str, index: int) -> Claim:
    return Claim(keys.partition(topic, index), keys.leader(topic, index))


def _claimed(holding: Holding) -> Claimed:
    key = holding.claim.record_key
    return Claimed(
        *keys.topic_and_partition(key), decode_partition_record(key, holding.record), holding.revision
    )
