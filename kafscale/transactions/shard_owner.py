"""The ownership of a shard of transactional ids, as a condition of what its coordinator writes. Pure.

With the old protocol one epoch has many transactions, so that an EndTxn which arrives late may end the next one
(KAFKA-17754). In Kafka that can happen at the current coordinator only: one that was replaced cannot write any more.
So the writes for that protocol's requests compare the owner's key, too. A broker that was paused, and wakes up with
an EndTxn in its socket which the client has sent to the next coordinator by then, decides nothing.
"""

from typing import Final

from kafscale.formats.topic_record import decode_coordinator_record
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, KeyValue

_NOT_KNOWN: Final = -1
"""No key has this revision: the first write finds the key as it is."""


class ShardOwner:
    """The owner's key of one shard at the revision which this broker knows to be its own."""

    def __init__(self, shard: int, broker_id: int) -> None:
        self._key = keys.coordinator(shard)
        self._broker_id = broker_id
        self._revision = _NOT_KNOWN

    @property
    def compare(self) -> Compare:
        """The condition that this broker owns the shard."""
        return Compare(self._key, self._revision)

    def found(self, item: KeyValue | None) -> bool:
        """Take in the key as a write found it; True if this broker owns the shard.

        Raises `CorruptDataError`.
        """
        if item is None or decode_coordinator_record(item.key, item.value).broker_id != self._broker_id:
            self._revision = _NOT_KNOWN
            return False
        self._revision = item.mod_revision
        return True
