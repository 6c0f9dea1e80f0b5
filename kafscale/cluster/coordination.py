"""Gaining group shards: a new coordinator epoch in the shard's record and the coordinator's key, at once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kafscale.cluster.claims import Claim, Claims
from kafscale.formats.topic_record import (
    decode_group_shard_record,
    encode_coordinator_record,
    encode_group_shard_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import CoordinatorRecord, GroupShardRecord
from kafscale.metadata.store import MetadataStore

_FIRST_EPOCH = 0


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard whose groups this broker coordinates. `revision`: of the shard's record, which is `record`."""

    shard: int
    record: GroupShardRecord
    revision: int


class Coordination:
    """Claims shards for one broker, under the lease that `lease` tells."""

    def __init__(
        self, store: MetadataStore, broker_id: int, lease: Callable[[], int], retry_delay_sec: float = 0.2
    ) -> None:
        self._broker_id = broker_id
        self._claims = Claims(store, lease, self._next_record, retry_delay_sec)

    def _next_record(self, key: str, value: bytes | None) -> tuple[bytes, bytes]:
        epoch = _FIRST_EPOCH
        if value is not None:
            epoch = decode_group_shard_record(key, value).coordinator_epoch + 1
        record = GroupShardRecord(broker_id=self._broker_id, coordinator_epoch=epoch, sequence=0)
        coordinator = CoordinatorRecord(broker_id=self._broker_id, coordinator_epoch=epoch)
        return encode_group_shard_record(record), encode_coordinator_record(coordinator)

    async def claim(self, shards: Iterable[int]) -> list[ClaimedShard]:
        """Coordinate those shards that nobody coordinates; returns what this broker gained.

        Whoever did before can write nothing any more. Tries again while the store is away. Raises
        `LeaseEndedError`.
        """
        claims = {keys.group_shard(shard): shard for shard in sorted(shards)}
        gained = await self._claims.gain(Claim(key, keys.coordinator(shard)) for key, shard in claims.items())
        return [
            ClaimedShard(
                claims[holding.claim.record_key],
                decode_group_shard_record(holding.claim.record_key, holding.record),
                holding.revision,
            )
            for holding in gained
        ]

    async def release(self, revisions: Mapping[int, int]) -> None:
        """Let others coordinate what this broker gained at these revisions; what it lost is left alone."""
        await self._claims.give_up({keys.coordinator(shard): at for shard, at in revisions.items()})

    async def release_strays(self, shards: Iterable[int]) -> None:
        """Let others coordinate shards that the store says this broker coordinates, although it does not."""
        await self._claims.give_up_strays(keys.coordinator(shard) for shard in shards)
