"""The record driver over a store in memory, and producer ids for it."""

import itertools
from collections.abc import Sequence

from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_topic_record
from kafscale.formats.transaction_record import (
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import KeyValue, MetadataReader, MetadataStore, Put, Snapshot
from kafscale.transactions.record_driver import RecordDriver
from tests.transactions.values import ORDERS_ID


class CountedIds:
    """Producer ids from 9000 on."""

    def __init__(self) -> None:
        self._ids = itertools.count(9000)

    async def next_producer_id(self) -> int:
        return next(self._ids)


def driver_over(store: MetadataStore) -> RecordDriver:
    return RecordDriver(store, SharedWrites(store), CountedIds())


def view_with(*topics: TopicRecord) -> ClusterView:
    """A view that shows these topics, `orders` with three partitions if none is given."""
    view = ClusterView("test")
    shown = topics or (TopicRecord(name="orders", topic_id=ORDERS_ID, partition_count=3),)
    items = tuple(
        KeyValue(key=keys.topic(one.name), value=encode_topic_record(one), mod_revision=1) for one in shown
    )
    view.apply(keys.TOPICS, Snapshot(items=items, revision=1))
    return view


async def put_record(store: MetadataStore, transactional_id: str, record: TransactionRecord) -> int:
    """Store the record whatever was there; the revision of it."""
    put = Put(keys.transaction(transactional_id), encode_transaction_record(record))
    return (await store.transact([], [put])).revision


async def read_record(store: MetadataReader, transactional_id: str) -> TransactionRecord | None:
    found = await store.get(keys.transaction(transactional_id))
    return None if found is None else decode_transaction_record(found.key, found.value)


async def marker_keys(store: MetadataReader) -> Sequence[str]:
    """Every marker key that is there."""
    prefixes = (keys.PARTITION_MARKERS, keys.GROUP_MARKERS)
    return [item.key for prefix in prefixes for item in (await store.range(prefix)).items]
