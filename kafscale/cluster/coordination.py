"""Claims of group shards: a new epoch in the shard's record and the coordinator's key, in one transaction."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kafscale.cluster.claim_attempt import Claim
from kafscale.cluster.claims import Claims
from kafscale.formats.topic_record import (
    decode_group_shard_record,
    encode_coordinator_record,
    encode_group_shard_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import CoordinatorRecord, GroupShardRecord
from kafscale.metadata.store import KeyValue, MetadataStore

_FIRST_EPOCH = 0


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard whose groups this broker coordinates. `revision`: of the shard's record, which is `record`."""

    shard: int
    record: GroupShardRecord
    revision: int


class Coordination:
    """Claims and releases group shards for one broker, under the lease that `lease` returns."""

    def __init__(
        self, store: MetadataStore, broker_id: int, lease: Callable[[], int], retry_delay_sec: float = 0.2
    ) -> None:
        self._broker_id = broker_id
        self._claims = Claims(store, lease, self._next_record, retry_delay_sec)

    def _next_record(self, key: str, value: bytes | None, _: KeyValue | None) -> tuple[bytes, bytes]:
        epoch = _FIRST_EPOCH
        if value is not None:
            epoch = decode_group_shard_record(key, value).coordinator_epoch + 1
        record = GroupShardRecord(broker_id=self._broker_id, coordinator_epoch=epoch, sequence=0)
        coordinator = CoordinatorRecord(broker_id=self._broker_id, coordinator_epoch=epoch)
        return encode_group_shard_record(record), encode_coordinator_record(coordinator)

    async def claim(self, shards: Iterable[int]) -> list[ClaimedShard]:
        """Claim the shards that have no coordinator, and return those that this broker now coordinates.

        The coordinator before can write nothing any more. Retries while the store is away. Raises
        `LeaseEndedError`.
        """
        claims = {keys.group_shard(shard): shard for shard in sorted(shards)}
        claimed = await self._claims.claim(
            Claim(key, keys.coordinator(shard)) for key, shard in claims.items()
        )
        return [
            ClaimedShard(
                claims[owned.claim.record_key],
                decode_group_shard_record(owned.claim.record_key, owned.record),
                owned.revision,
            )
            for owned in claimed
        ]

    async def release(self, revisions: Mapping[int, int]) -> None:
        """Release the shards that this broker still coordinates as claimed at these revisions."""
        await self._claims.release({keys.coordinator(shard): at for shard, at in revisions.items()})

    async def release_stale(self, shards: Iterable[int]) -> None:
        """Release shards whose coordinator key is under this broker's lease although it does not coordinate them."""
        await self._claims.release_stale(keys.coordinator(shard) for shard in shards)
