"""A topic in memory that splits are planned of and read from, with stores that a test can meddle with."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from typing import Any, TypeVar

import pytest

from kafscale.arrow.record_columns import record_columns
from kafscale.memory.slab import SlabPool
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader import piece_reader, splits
from kafscale.reader.split_reader import split_batches
from kafscale.reader.splits import Split
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_state import PartitionLog
from tests.spark_jobs.support.oracle_rows import Row, batch_rows
from tests.spark_jobs.support.planned import partition_log, plan_splits
from tests.spark_jobs.support.sent_records import Batch, Sent, batches_of, sent
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.support.controlled_store import ControlledStore

Result = TypeVar("Result")
MIB = 1024 * 1024
END = 2**63 - 1
NAMESPACE = "default"


class MemoryTopic:
    """The topic `events` with one partition. What is planned is read in the way of Spark's tasks, without Spark."""

    def __init__(self, *, index_interval: int = 10) -> None:
        self.metadata = MemoryStore()
        self.objects = ControlledStore()
        # What tasks read from; a test may put something else before it.
        self.reader: ListingReader = self.objects
        self.metadata_uses = 0
        self.stored = StoredTopic(
            self.metadata, self.objects, "events", namespace=NAMESPACE, index_interval=index_interval
        )
        self.values: dict[int, bytes | None] = {}
        run(self.stored.create(1))

    def append(self, *batches: Batch) -> None:
        """One segment."""
        for record in run(self.stored.append(0, batches)):
            self.values[record.offset] = record.value

    def append_segments(self, count: int, records: int = 5, *, value_bytes: int = 0) -> None:
        """Segments of so many records, in batches of two."""
        for _ in range(count):
            first = len(self.values)
            more: Sequence[Sent] = sent(records, first=first, value_bytes=value_bytes)
            self.append(*batches_of(more, batch_records=2))

    def log(self) -> PartitionLog:
        """The partition as it is now."""
        return run(partition_log(self.metadata, self.objects, "events", 0))

    def splits(
        self, first_offset: int = 0, next_offset: int = END, *, split_bytes: int = splits.DEFAULT_SPLIT_BYTES
    ) -> list[Split]:
        """Planned as it is now."""
        return run(
            plan_splits(
                self.log(), self.objects, NAMESPACE, first_offset, next_offset, split_bytes=split_bytes
            )
        )

    def split(self, first_offset: int = 0, next_offset: int = END) -> Split:
        """All in one."""
        (split,) = self.splits(first_offset, next_offset)
        return split

    @contextmanager
    def batches(self, split: Split) -> Iterator[Iterator[StoredBatches]]:
        """The split as a task gets it from the stores."""
        with (
            StoreThread(self) as stores,
            closing(split_batches(NAMESPACE, split, stores, SlabPool(MIB))) as found,
        ):
            yield found

    def rows(self, *some: Split) -> list[Row]:
        """The records of the splits."""
        rows: list[Row] = []
        for split in some:
            with self.batches(split) as found:
                for batch in record_columns(found, "events", include_headers=True):
                    rows += batch_rows(batch)
        return rows

    def read(self, *some: Split) -> dict[int, bytes | None]:
        """Values by offset; each offset comes once, in order."""
        rows = self.rows(*some)
        assert [row[4] for row in rows] == sorted({row[4] for row in rows})
        return {row[4]: row[1] for row in rows}

    def values_between(self, first_offset: int, next_offset: int = END) -> dict[int, bytes | None]:
        """The expected result of `read`."""
        return {
            offset: value for offset, value in self.values.items() if first_offset <= offset < next_offset
        }

    # --- `StoreOpener`: what a task opens

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        return self.reader

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        self.metadata_uses += 1
        return self.metadata


def run(call: Coroutine[Any, Any, Result]) -> Result:
    """In an event loop of its own."""
    return asyncio.run(call)


def make_segments_large(
    monkeypatch: pytest.MonkeyPatch, *, whole_bytes: int = 2000, chunk_bytes: int = 1000
) -> None:
    """Let segments of more than `whole_bytes` be divided."""
    monkeypatch.setattr(splits, "WHOLE_SEGMENT_BYTES", whole_bytes)
    monkeypatch.setattr(splits, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(piece_reader, "CHUNK_BYTES", chunk_bytes)
