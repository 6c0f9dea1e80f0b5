"""Claims of partitions: a new leader epoch in the partition's record and the leader's key, in one transaction."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from kafscale.cluster.claim_attempt import Claim, Owned
from kafscale.cluster.claims import Claims
from kafscale.errors import CorruptDataError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.partition_record import (
    EpochStart,
    JournalPosition,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import decode_topic_record, encode_leader_record
from kafscale.journal.partition_state import partition_state
from kafscale.journal.replay import Replay
from kafscale.metadata import keys
from kafscale.metadata.model import LeaderRecord
from kafscale.metadata.store import NO_LEASE, Compare, KeyValue, MetadataStore, Put, read_many
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

logger = logging.getLogger(__name__)

RELEASE_ATTEMPT_SEC = 10.0
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


class Journals(Protocol):
    """The journals that the claims of a broker begin and end with."""

    @property
    def namespace(self) -> str:
        """In whose folder of the object store journals are."""

    def position(self, topic: str) -> JournalPosition | None:
        """Where this broker's records of the topic's partitions go from now on; None if there is no such topic."""

    async def replays(self, positions: Iterable[JournalPosition]) -> Mapping[str, Replay]:
        """The journals behind these positions, by journal id; those of live brokers are left out."""


class Leadership:
    """Claims and releases partitions for one broker, under the lease that `lease` returns."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        lease: Callable[[], int],
        journals: Journals,
        retry_delay_sec: float = 0.2,
        failures: ItemFailures | None = None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._journals = journals
        self._replays: Mapping[str, Replay] = {}
        self._lease = lease
        self._retry_delay_sec = retry_delay_sec
        self._failures = failures or ItemFailures(BackgroundWork.CLAIMS)
        self._claims = Claims(store, lease, self._next_record, retry_delay_sec, self._failures)

    def _next_record(
        self, key: str, value: bytes | None, topic_record: KeyValue | None
    ) -> tuple[bytes, bytes] | None:
        if value is None:
            return None  # No such partition, or its topic is being deleted.
        record = decode_partition_record(key, value)
        topic, index = keys.topic_and_partition(key)
        if record.journal is not None:
            replay = self._replays.get(record.journal.journal_id)
            if replay is None or replay.first > record.journal.sequence + 1:
                return None  # Its leader is another one than a moment ago, or its journal cannot be read.
            record = partition_state(record, replay, self._journals.namespace, index)
        record = next_epoch(record)
        position = self._journals.position(topic)
        if position is None or topic_record is None or _topic_id(topic_record) != position.topic_id:
            return (
                None  # The topic is not known here yet, or is being deleted; another one may have its name.
            )
        record = replace(record, journal=position)
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
        known = await self._records(claims) if len(claims) >= _MANY else None
        if known is None:
            known = await self._claims.read(claims)
        self._replays = await self._journals.replays(_positions(claims, known))
        elected: list[Claimed] = []

        def take(owned: Owned) -> None:
            elected.append(_claimed(owned))
            notify(elected[-1])

        await self._claims.claim(claims, known, take)
        return elected

    async def _records(self, claims: Sequence[Claim]) -> dict[str, KeyValue] | None:
        """All records of partitions, and those of the topics of these claims; None if a store is away."""
        try:
            snapshot = await self._store.range(keys.PARTITIONS)
            found = {item.key: item for item in snapshot.items}
            topics = list({claim.ground_key: None for claim in claims if claim.ground_key is not None})
            for start in range(0, len(topics), self._store.max_operations):
                found |= await read_many(self._store, topics[start : start + self._store.max_operations])
        except (StoreUnavailableError, StoreIndeterminateError):
            return None
        return found

    async def release(self, revisions: dict[TopicPartition, int]) -> None:
        """Release the partitions that this broker still leads as claimed at these revisions."""
        await self._claims.release({keys.leader(*partition): at for partition, at in revisions.items()})

    async def release_records(self, partitions: Iterable[TopicPartition]) -> None:
        """Store what this broker's journal has of partitions that it does not lead any more, as far as it is missing.

        While the journal goes on, no other broker reads it: without this, none could claim them. Retries while a
        store is away, until the lease ends; then the journal ends, too.
        """
        lease = self._lease()
        left = [_claim(topic, index) for topic, index in partitions]
        while left and lease != NO_LEASE and self._lease() == lease:
            try:
                async with asyncio.timeout(RELEASE_ATTEMPT_SEC):
                    left = await self._release_records(left)
            except (TimeoutError, StoreUnavailableError, StoreIndeterminateError) as problem:
                logger.warning(
                    "could not release the records of partitions, trying again",
                    extra={"partitions": len(left), "problem": str(problem) or repr(problem)},
                )
            if left:
                await asyncio.sleep(self._retry_delay_sec)

    async def _release_records(self, claims: Sequence[Claim]) -> list[Claim]:
        """Try once; returns those whose records were written by others meanwhile."""
        known = await self._claims.read(claims)
        own = {position.journal_id for claim in claims if (position := self._own_position(claim)) is not None}
        positions = [one for one in _positions(claims, known) if one.journal_id in own]
        replays = await self._journals.replays(positions) if positions else {}
        left = []
        for claim in claims:
            found = known.get(claim.record_key)
            if found is None:
                continue
            try:
                released = self._released_record(found, replays)
            except CorruptDataError as problem:
                now = await self._store.get(claim.record_key)
                if now is None or now.mod_revision != found.mod_revision:
                    left.append(claim)  # Behind a record that was replaced, entries may have been collected.
                else:
                    self._failures.report(claim.record_key, problem)
                continue
            if released is None:
                continue
            result = await self._store.transact(
                [Compare(claim.record_key, found.mod_revision)], [Put(claim.record_key, released)]
            )
            if not result.succeeded:
                left.append(claim)
        return left

    def _released_record(self, found: KeyValue, replays: Mapping[str, Replay]) -> bytes | None:
        """With what the journal has, and without the journal; None if the record names none that was read."""
        record = decode_partition_record(found.key, found.value)
        replay = None if record.journal is None else replays.get(record.journal.journal_id)
        if replay is None:
            return None
        _, index = keys.topic_and_partition(found.key)
        state = partition_state(record, replay, self._journals.namespace, index)
        return encode_partition_record(replace(state, journal=None))

    def _own_position(self, claim: Claim) -> JournalPosition | None:
        return self._journals.position(keys.topic_and_partition(claim.record_key)[0])

    async def release_stale(self, partitions: Iterable[TopicPartition]) -> None:
        """Release partitions whose leader key is under this broker's lease although it does not lead them."""
        await self._claims.release_stale(keys.leader(*partition) for partition in partitions)


def _positions(claims: Iterable[Claim], known: Mapping[str, KeyValue]) -> Iterator[JournalPosition]:
    """Where the rest of these partitions is, as far as their records can be read."""
    for claim in claims:
        found = known.get(claim.record_key)
        if found is None:
            continue
        with suppress(CorruptDataError):  # reported when it is claimed
            record = decode_partition_record(found.key, found.value)
            if record.journal is not None:
                yield record.journal


def _claim(topic: str, index: int) -> Claim:
    return Claim(keys.partition(topic, index), keys.leader(topic, index), keys.topic(topic))


@lru_cache(maxsize=64)
def _topic_id(record: KeyValue) -> uuid.UUID:
    """Of a topic's record; a topic may have thousands of partitions. Raises `CorruptDataError`."""
    return decode_topic_record(record.key, record.value).topic_id


def _claimed(owned: Owned) -> Claimed:
    key = owned.claim.record_key
    return Claimed(*keys.topic_and_partition(key), decode_partition_record(key, owned.record), owned.revision)
