"""Checks in the metadata store that this broker still leads a partition: required before objects are deleted."""

from kafscale.formats.partition_record import decode_partition_record
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore


async def is_leader_still(metadata: MetadataStore, partition: Partition) -> bool:
    """True if no other broker led when the store was read, and the topic was not deleted and created again.

    Each later leader, and a topic created again, raises the leader epoch, so the same epoch is this broker's.
    Raises `StoreError`, `CorruptDataError`.
    """
    found = await metadata.get(keys.partition(partition.id.topic, partition.id.index))
    if found is None:
        return False
    record = decode_partition_record(found.key, found.value)
    return partition.is_led and record.leader_epoch == partition.record.leader_epoch
