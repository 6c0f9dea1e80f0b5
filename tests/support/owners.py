"""Ends and replaces brokers' ownership without notifying them."""

from kafscale.cluster.leadership import next_epoch
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import encode_leader_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import LeaderRecord
from kafscale.metadata.store import MetadataStore, Put

ELSEWHERE = 9
"""The broker that `lead_elsewhere` lets lead."""


async def end_leases(store: MemoryStore, prefix: str) -> None:
    """End every lease to which a key under `prefix` is bound: another broker may claim what it owned.

    It bypasses a test's changes of the store's calls.
    """
    snapshot = await MemoryStore.range(store, prefix)
    for lease in sorted({item.lease for item in snapshot.items if item.lease}):
        await MemoryStore.revoke_lease(store, lease)


async def lead_elsewhere(store: MetadataStore, topic: str, index: int = 0) -> int:
    """Let another broker lead the partition, which is created if necessary, under the next leader epoch.

    Returns the lease that its leadership is bound to.
    """
    key = keys.partition(topic, index)
    stored = await store.get(key)
    record = (
        PartitionRecord(leader_epoch=-1) if stored is None else decode_partition_record(key, stored.value)
    )
    record = next_epoch(record)
    lease = await store.grant_lease(3600)
    leader = LeaderRecord(broker_id=ELSEWHERE, leader_epoch=record.leader_epoch)
    await store.transact(
        [],
        [
            Put(key, encode_partition_record(record)),
            Put(keys.leader(topic, index), encode_leader_record(leader), lease),
        ],
    )
    return lease
