"""Ends and replaces brokers' ownership without notifying them."""

import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kafscale.cluster.leadership import next_epoch
from kafscale.formats.journal_keys import parse_entry_key
from kafscale.formats.journal_record import decode_journal_record
from kafscale.formats.partition_record import (
    JournalPosition,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import encode_leader_record
from kafscale.journal.partition_state import partition_state
from kafscale.journal.replay import Replay
from kafscale.log.journal.end_journal import JournalEnding, StoredJournal
from kafscale.log.journal.heads import read_heads
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import LeaderRecord
from kafscale.metadata.store import MetadataStore, Put
from kafscale.objects.object_store import ObjectStore

NAMESPACE = "default"
ELSEWHERE = 9
"""The broker that `lead_elsewhere` lets lead."""


async def end_leases(store: MemoryStore, prefix: str) -> None:
    """End every lease to which a key under `prefix` is bound: another broker may claim what it owned.

    It bypasses a test's changes of the store's calls.
    """
    snapshot = await MemoryStore.range(store, prefix)
    for lease in sorted({item.lease for item in snapshot.items if item.lease}):
        await MemoryStore.revoke_lease(store, lease)


async def lead_elsewhere(
    store: MetadataStore, topic: str, index: int = 0, objects: ObjectStore | None = None
) -> int:
    """Let another broker lead the partition, which is created if necessary, under the next leader epoch.

    With `objects`, it ends its leader's journal first and takes over what that has, as brokers do. Returns the lease
    that its leadership is bound to.
    """
    key = keys.partition(topic, index)
    stored = await store.get(key)
    record = (
        PartitionRecord(leader_epoch=-1) if stored is None else decode_partition_record(key, stored.value)
    )
    if objects is not None:
        record = await taken_over(store, objects, record, index)
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


async def end_journal(store: MetadataStore, objects: ObjectStore, journal_id: str) -> int:
    """End a broker's journal as another one does that takes it for dead; returns the fence's place."""
    retries = StoreRetries(random.Random(0))
    return await JournalEnding(
        objects, StoredJournal(store, journal_id), NAMESPACE, journal_id, ELSEWHERE, retries, lambda: 0
    ).end()


async def taken_over(
    store: MetadataStore, objects: ObjectStore, record: PartitionRecord, index: int
) -> PartitionRecord:
    """End the journal that the record names, and return the record with what that has behind it."""
    position = record.journal
    if position is None:
        return record
    journal_id, first = position.journal_id, position.sequence + 1
    end = await end_journal(store, objects, journal_id)
    parsed = [parse_entry_key(info.key) async for info in objects.list("_kafscale/")]
    there = [one.sequence for one in parsed if one is not None and one.journal_id == journal_id]
    wanted = [sequence for sequence in there if first <= sequence < end]
    heads = await read_heads(objects, NAMESPACE, journal_id, wanted, StoreRetries(random.Random(0)))
    found = await store.get(keys.journal(journal_id))
    assert found is not None
    progress = decode_journal_record(found.key, found.value).progress
    replay = Replay(journal_id, heads, first=first, end=end, progress=progress)
    return replace(partition_state(record, replay, NAMESPACE, index), journal=None)


JOURNALS_TOPIC_ID = uuid.UUID(int=1)
"""Of every topic, as `OneJournal` has it."""


class OneJournal:
    """The journals of a broker that writes none: claims name it, and no other one is read."""

    namespace = "default"

    def __init__(self, topic_id_of: Callable[[str], uuid.UUID | None] = lambda _: JOURNALS_TOPIC_ID) -> None:
        self._topic_id_of = topic_id_of

    def position(self, topic: str) -> JournalPosition | None:
        topic_id = self._topic_id_of(topic)
        if topic_id is None:
            return None
        return JournalPosition(journal_id="none", sequence=-1, topic_id=topic_id)

    async def replays(self, positions: Iterable[JournalPosition]) -> Mapping[str, Replay]:
        """Nothing is behind any position."""
        return {one.journal_id: Replay(one.journal_id, {}, first=0, end=0, progress=-1) for one in positions}
