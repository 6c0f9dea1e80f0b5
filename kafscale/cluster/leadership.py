"""Claims of partitions: a new leader epoch in the partition's record and the leader's key, in one transaction."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kafscale.cluster.claims import Claim, Claims, Owned
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
    """Claims and releases partitions for one broker, under the lease that `lease` returns."""

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
        notify: Callable[[Claimed], None] = lambda claimed: None,
    ) -> list[Claimed]:
        """Claim the partitions that have a record and no leader, and return those that this broker now leads.

        `notify` is called for each as soon as this broker is elected: clients may know of it before the last
        claim is made. Retries while the store is away. Raises `LeaseEndedError`.
        """
        claims = [_claim(topic, index) for topic, index in partitions]
        known = await self._records() if len(claims) >= _MANY else None
        elected: list[Claimed] = []

        def take(owned: Owned) -> None:
            elected.append(_claimed(owned))
            notify(elected[-1])

        await self._claims.claim(claims, known, take)
        return elected

    async def _records(self) -> dict[str, KeyValue] | None:
        try:
            snapshot = await self._store.range(keys.PARTITIONS)
        except (StoreUnavailableError, StoreIndeterminateError):
            return None
        return {item.key: item for item in snapshot.items}

    async def release(self, revisions: dict[TopicPartition, int]) -> None:
        """Release the partitions that this broker still leads as claimed at these revisions."""
        await self._claims.release({keys.leader(*partition): at for partition, at in revisions.items()})

    async def release_stale(self, partitions: Iterable[TopicPartition]) -> None:
        """Release partitions whose leader key is under this broker's lease although it does not lead them."""
        await self._claims.release_stale(keys.leader(*partition) for partition in partitions)


def _claim(topic: str, index: int) -> Claim:
    return Claim(keys.partition(topic, index), keys.leader(topic, index))


def _claimed(owned: Owned) -> Claimed:
    key = owned.claim.record_key
    return Claimed(*keys.topic_and_partition(key), decode_partition_record(key, owned.record), owned.revision)
