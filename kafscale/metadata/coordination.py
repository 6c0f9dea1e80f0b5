"""Gaining group shards: a new coordinator epoch in the shard's record and the coordinator's key, at once."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafscale.errors import LeaseEndedError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata import keys
from kafscale.metadata.model import CoordinatorRecord, GroupShardRecord
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.metadata.topic_record import (
    decode_group_shard_record,
    encode_coordinator_record,
    encode_group_shard_record,
)

logger = logging.getLogger(__name__)

_FIRST_EPOCH = 0
_OPERATIONS_PER_CLAIM = 2


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard whose groups this broker coordinates. `revision`: of the shard's record, which is `record`."""

    shard: int
    record: GroupShardRecord
    revision: int


class Coordination:
    """Claims shards for one broker, under its lease."""

    def __init__(
        self, store: MetadataStore, broker_id: int, lease: int, retry_delay_sec: float = 0.2
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._lease = lease
        self._retry_delay_sec = retry_delay_sec

    async def claim(self, shards: Iterable[int]) -> list[ClaimedShard]:
        """Coordinate these shards; whoever did before can write nothing any more.

        Tries again while the store is away. Raises `LeaseEndedError` when the broker's lease has ended.
        """
        wanted = sorted(shards)
        chunk = self._store.max_operations // _OPERATIONS_PER_CLAIM
        chunks = [wanted[start : start + chunk] for start in range(0, len(wanted), chunk)]
        claimed = [await self._claim_chunk(part) for part in chunks]
        return [one for part in claimed for one in part]

    async def _claim_chunk(self, shards: Sequence[int]) -> list[ClaimedShard]:
        while True:
            try:
                held = {item.key: item for item in (await self._store.range(keys.GROUP_SHARDS)).items}
                claimed = await self._try_claim(shards, held)
                if claimed is not None:
                    return claimed
            except StoreIndeterminateError as problem:
                # Had it landed, its epoch is passed over: nobody writes under it.
                logger.warning(
                    "a claim of group shards has an unknown outcome", extra={"problem": str(problem)}
                )
            except LeaseEndedError:
                raise
            except StoreUnavailableError as problem:
                logger.warning("could not claim group shards, trying again", extra={"problem": str(problem)})
            await asyncio.sleep(self._retry_delay_sec)

    async def _try_claim(self, shards: Sequence[int], held: dict[str, KeyValue]) -> list[ClaimedShard] | None:
        before = [held.get(keys.group_shard(shard)) for shard in shards]
        records = [self._next_record(item) for item in before]
        result = await self._store.transact(
            [
                Compare(keys.group_shard(shard), ABSENT if item is None else item.mod_revision)
                for shard, item in zip(shards, before, strict=True)
            ],
            [put for shard, record in zip(shards, records, strict=True) for put in self._puts(shard, record)],
        )
        if not result.succeeded:
            return None
        return [
            ClaimedShard(shard, record, result.revision)
            for shard, record in zip(shards, records, strict=True)
        ]

    def _next_record(self, item: KeyValue | None) -> GroupShardRecord:
        epoch = _FIRST_EPOCH
        if item is not None:
            epoch = decode_group_shard_record(item.key, item.value).coordinator_epoch + 1
        return GroupShardRecord(broker_id=self._broker_id, coordinator_epoch=epoch, sequence=0)

    def _puts(self, shard: int, record: GroupShardRecord) -> tuple[Put, Put]:
        coordinator = CoordinatorRecord(
            broker_id=record.broker_id, coordinator_epoch=record.coordinator_epoch
        )
        return (
            Put(keys.group_shard(shard), encode_group_shard_record(record)),
            Put(keys.coordinator(shard), encode_coordinator_record(coordinator), self._lease),
        )
