"""Gaining partitions: a new leader epoch in the partition's record and the leader's key, in one transaction."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, LeaderRecord
from kafscale.metadata.partition_record import (
    EpochStart,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.metadata.topic_record import encode_broker_record, encode_leader_record

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# More epochs than any client asks for; without a limit the record would grow with every change of leader.
REMEMBERED_EPOCHS = 128
_OPERATIONS_PER_CLAIM = 2


@dataclass(frozen=True, slots=True)
class Claimed:
    """A partition that this broker leads now, as its record stands at `revision`."""

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
    """This broker's registration and the partitions it leads, both under one lease."""

    def __init__(
        self, store: MetadataStore, broker: BrokerRecord, lease_ttl_sec: int, retry_delay_sec: float = 0.2
    ) -> None:
        self._store = store
        self._broker = broker
        self._lease_ttl_sec = lease_ttl_sec
        self._retry_delay_sec = retry_delay_sec
        self._lease = 0

    @property
    def lease(self) -> int:
        """What the broker's registration, and everything it leads or coordinates, is bound to."""
        return self._lease

    async def register(self) -> bool:
        """Register the broker under a new lease; False when a broker of this id is registered."""
        key = keys.broker(self._broker.broker_id)
        value = encode_broker_record(self._broker)
        self._lease = await self._store.grant_lease(self._lease_ttl_sec)
        try:
            result = await self._store.transact([Compare(key, ABSENT)], [Put(key, value, self._lease)])
        except StoreIndeterminateError:
            found = await self._store.get(key)
            return found is not None and found.lease == self._lease
        return result.succeeded

    async def keep_alive(self) -> None:
        """Renew the lease until it is lost; the broker must then stop leading."""
        while True:
            await asyncio.sleep(self._lease_ttl_sec / 3)
            try:
                if not await self._store.renew_lease(self._lease):
                    logger.error("the lease of this broker has ended")
                    return
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                logger.warning("could not renew the lease", extra={"problem": str(problem)})

    async def claim(self, partitions: Iterable[tuple[str, int]], topic: str | None = None) -> list[Claimed]:
        """Lead the partitions that have a record; returns those that this broker leads now.

        `topic` narrows what is read when all partitions belong to it.
        """
        wanted = set(partitions)
        prefix = keys.PARTITIONS if topic is None else keys.partitions(topic)
        snapshot = await self._until_answered(lambda: self._store.range(prefix))
        items = [item for item in snapshot.items if keys.topic_and_partition(item.key) in wanted]
        chunk = self._store.max_operations // _OPERATIONS_PER_CLAIM
        chunks = [items[start : start + chunk] for start in range(0, len(items), chunk)]
        claimed = await asyncio.gather(*(self._claim_chunk(part) for part in chunks))
        return [one for part in claimed for one in part]

    async def _claim_chunk(self, items: Sequence[KeyValue]) -> list[Claimed]:
        async def read_and_claim() -> list[Claimed]:
            nonlocal items
            try:
                return await self._try_claim(items)
            except (StoreUnavailableError, StoreIndeterminateError):
                # Whatever became of the transaction: the next attempt starts from what the store holds.
                items = await self._until_answered(lambda: self._read_again(items))
                raise

        return await self._until_answered(read_and_claim)

    async def _until_answered(self, call: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await call()
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                logger.warning("could not claim partitions, trying again", extra={"problem": str(problem)})
            await asyncio.sleep(self._retry_delay_sec)

    async def _try_claim(self, items: Sequence[KeyValue]) -> list[Claimed]:
        while items:
            records = [next_epoch(decode_partition_record(item.key, item.value)) for item in items]
            result = await self._store.transact(
                [Compare(item.key, item.mod_revision) for item in items],
                [
                    put
                    for item, record in zip(items, records, strict=True)
                    for put in self._puts(item.key, record)
                ],
            )
            if result.succeeded:
                return [
                    Claimed(*keys.topic_and_partition(item.key), record, result.revision)
                    for item, record in zip(items, records, strict=True)
                ]
            items = [found for found in result.found if found is not None]
        return []

    def _puts(self, key: str, record: PartitionRecord) -> tuple[Put, Put]:
        leader = LeaderRecord(broker_id=self._broker.broker_id, leader_epoch=record.leader_epoch)
        return (
            Put(key, encode_partition_record(record)),
            Put(keys.leader(*keys.topic_and_partition(key)), encode_leader_record(leader), self._lease),
        )

    async def _read_again(self, items: Sequence[KeyValue]) -> list[KeyValue]:
        found = [await self._store.get(item.key) for item in items]
        return [item for item in found if item is not None]

    async def close(self) -> None:
        """End the lease, and with it the registration and everything that this broker leads."""
        if self._lease:
            await self._store.revoke_lease(self._lease)
            self._lease = 0
