"""Reads one split into Arrow record batches."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa

from kafscale.memory.slab import SlabPool
from kafscale.reader.opened_stores import OpenedStores
from kafscale.reader.reads_ahead import POOL_BYTES
from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.split_reader import split_batches
from kafscale.reader.store_thread import StoreThread
from kafscale.settings.broker import Settings

# The next task of the process reads into the memory of the last one: new pages would cost more than the read.
_spare_pools: list[SlabPool] = []


def read_split(
    settings: Settings,
    split: AnySplit,
    *,
    include_headers: bool,
    on_skipped: Callable[[int], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """The split's records, each partition's in order, in batches of the schema `arrow_schema(include_headers)`.

    `on_skipped`: see `record_columns`. Every byte was checked against a checksum. Raises `CorruptDataError`,
    `ExpiredRangeError`, `StoreError`, `StartupError`.
    """
    # Imported here: its code is compiled when it is loaded, which only tasks use.
    from kafscale.arrow.record_columns import record_columns

    pool = _spare_pools.pop() if _spare_pools else SlabPool(POOL_BYTES)
    with (
        StoreThread(OpenedStores(settings)) as stores,
        closing(split_batches(settings.s3_namespace, split, stores, pool)) as stored,
    ):
        yield from record_columns(stored, split.topic, include_headers=include_headers, on_skipped=on_skipped)
    _spare_pools[:] = [pool]
