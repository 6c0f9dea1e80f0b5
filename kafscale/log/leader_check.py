"""Whether this broker still leads a partition, by the metadata store: what deletes objects asks first."""

from kafscale.formats.partition_record import decode_partition_record
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore


async def is_leader_still(metadata: MetadataStore, partition: Partition) -> bool:
    """Whether no other broker led when the store was asked, and the topic was not deleted and made again.

    Whoever leads or makes a partition after this broker raises its leader epoch, so the same epoch is this
    broker's. Raises `StoreError`, `CorruptDataError`.
    """
    found = await metadata.get(keys.partition(partition.id.topic, partition.id.index))
    if found is None:
        return False
    record = decode_partition_record(found.key, found.value)
    return partition.is_led and record.leader_epoch == partition.record.leader_epoch
