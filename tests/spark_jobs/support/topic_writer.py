"""Writes real topics fast, without a broker: into a data folder, or into etcd and a bucket.

The stores are opened for each call and closed again, so that between two calls a broker or an export can use
them. `StoredTopic` is the same for tests that have stores open.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kafscale.broker.stores import open_stores
from kafscale.formats.index import DEFAULT_INTERVAL
from kafscale.protocol.compression import Codec
from kafscale.settings.broker import Settings
from tests.spark_jobs.support.sent_records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Batch,
    Sent,
    Stored,
    batches_of,
)
from tests.spark_jobs.support.stored_topic import StoredTopic

Result = TypeVar("Result")


def embedded(data_folder: Path) -> Settings:
    """The settings of a broker on embedded stores; nothing is forced to disk."""
    return Settings(data_dir=data_folder, local_fsync=False)


class TopicWriter:
    """One topic, made when the writer is. Remembers what must be found in it.

        writer = TopicWriter(embedded(tmp_path), "events", partitions=3)
        writer.append(0, sent(100), Codec.ZSTD, batch_records=10)
        writer.merge(0)
        assert rows == writer.rows()

    `create=False`: the topic is there already, of a broker; what that wrote is not remembered.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        partitions: int = 1,
        index_interval: int = DEFAULT_INTERVAL,
        create: bool = True,
    ) -> None:
        self.settings = settings
        self.topic = topic
        self.partitions = partitions
        self._index_interval = index_interval
        self._written: list[Stored] = []
        self._log_starts = [0] * partitions
        if create:
            self.run(lambda topic: topic.create(partitions))

    def append(
        self,
        partition: int,
        records: Sequence[Sent],
        codec: Codec = Codec.NONE,
        *,
        batch_records: int | None = None,
        log_append_time_ms: int | None = None,
    ) -> list[Stored]:
        """Publish the records as one segment, in batches of at most `batch_records`; returns them as stored."""
        batches = batches_of(
            records, codec, batch_records=batch_records, log_append_time_ms=log_append_time_ms
        )
        return self.append_batches(partition, batches)

    def append_batches(self, partition: int, batches: Sequence[Batch]) -> list[Stored]:
        """Publish the batches as one segment; returns their records, without those of control batches."""
        written = iter(self.run(lambda topic: topic.append(partition, batches)))
        stored = []
        for batch in batches:
            kind = CREATE_TIME if batch.log_append_time_ms is None else LOG_APPEND_TIME
            for _ in batch.records:
                record = next(written)
                if not batch.is_control:
                    stored.append(
                        Stored(
                            topic=self.topic,
                            partition=partition,
                            offset=record.offset,
                            timestamp_ms=record.timestamp_ms,
                            timestamp_type=kind,
                            key=record.key,
                            value=record.value,
                            headers=record.headers,
                        )
                    )
        self._written += stored
        return stored

    def leave_unpublished(self, partition: int, records: Sequence[Sent], codec: Codec = Codec.NONE) -> str:
        """Put the next segment's objects and publish nothing; returns the segment's key.

        Give the next records a `gap`, or the next append meets the object.
        """
        return self.run(lambda topic: topic.leave_unpublished(partition, batches_of(records, codec)))

    def new_leader(self, partition: int) -> int:
        """Let another leader go on; returns its leader epoch."""
        return self.run(lambda topic: topic.new_leader(partition))

    def write_checkpoint(self, partition: int) -> None:
        """Move every reference from the partition's record into a checkpoint."""
        self.run(lambda topic: topic.write_checkpoint(partition))

    def merge(
        self,
        partition: int,
        first_offset: int = 0,
        last_offset: int = 2**63 - 1,
        *,
        keeps_sources: bool = False,
    ) -> None:
        """Merge neighbouring segments into one and delete them, unless they are kept for a grace period."""
        self.run(lambda topic: topic.merge(partition, first_offset, last_offset, keeps_sources=keeps_sources))

    def move_log_start(self, partition: int, offset: int, *, keeps_objects: bool = False) -> None:
        """Let what is below `offset` expire."""
        self.run(lambda topic: topic.move_log_start(partition, offset, keeps_objects=keeps_objects))
        self._log_starts[partition] = offset

    def log_end_offset(self, partition: int) -> int:
        """The offset after the last published one."""
        return self.run(lambda topic: topic.record(partition)).log_end_offset

    def keys(self, partition: int) -> list[str]:
        """The objects of the published segments, ascending."""

        async def found(topic: StoredTopic) -> list[str]:
            return topic.keys_of(partition, await topic.references(partition))

        return self.run(found)

    def stored(self, partition: int | None = None) -> list[Stored]:
        """The published records that have not expired, by partition and offset."""
        return sorted(
            (
                record
                for record in self._written
                if record.offset >= self._log_starts[record.partition]
                and partition in (None, record.partition)
            ),
            key=lambda record: (record.partition, record.offset),
        )

    def rows(self, partition: int | None = None) -> list[dict[str, Any]]:
        """The published records as rows of a table; see `Stored.row`."""
        return [record.row() for record in self.stored(partition)]

    def run(self, work: Callable[[StoredTopic], Awaitable[Result]]) -> Result:
        """Do something with the topic while its stores are open; also from a test with an event loop."""

        async def opened() -> Result:
            async with contextlib.AsyncExitStack() as stack:
                metadata, objects = await open_stores(self.settings, stack)
                topic = StoredTopic(
                    metadata,
                    objects,
                    self.topic,
                    namespace=self.settings.s3_namespace,
                    index_interval=self._index_interval,
                )
                return await work(topic)

        return _in_thread(lambda: asyncio.run(opened()))


def _in_thread(call: Callable[[], Result]) -> Result:
    """A loop of its own, wherever the caller is."""
    results: list[Result] = []
    problems: list[BaseException] = []

    def target() -> None:
        try:
            results.append(call())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            problems.append(problem)

    thread = threading.Thread(target=target, name="topic-writer")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]
