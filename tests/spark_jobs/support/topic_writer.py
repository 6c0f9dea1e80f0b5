"""Writes real topics fast, without a broker: into a data folder, or into etcd and a bucket.

The stores are opened for each call and closed again, so that between two calls a broker or an export can use
them. `StoredTopic` is the same for tests that have stores open.
"""

import asyncio
import contextlib
import itertools
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kafscale.broker.stores import open_stores
from kafscale.formats.index import DEFAULT_INTERVAL
from kafscale.protocol.compression import Codec
from kafscale.protocol.records import Record
from kafscale.settings.broker import Settings
from tests.spark_jobs.support.sent_records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Batch,
    Sent,
    Stored,
    batches_of,
)
from tests.spark_jobs.support.stored_journal import StoredJournal
from tests.spark_jobs.support.stored_topic import StoredTopic

_journals = itertools.count(1)
Result = TypeVar("Result")
Change = Callable[..., Awaitable[object]]
"""A method of `StoredJournal`, which takes the topic and partitions."""


def embedded(data_folder: Path) -> Settings:
    """The settings of a broker on embedded stores; nothing is forced to disk."""
    return Settings(data_dir=data_folder, local_fsync=False)


class TopicWriter:
    """One topic, made when the writer is. Remembers what must be found in it.

        writer = TopicWriter(embedded(tmp_path), "events", partitions=3)
        writer.append(0, sent(100), Codec.ZSTD, batch_records=10)
        writer.merge(0)
        assert rows == writer.rows()

    What is appended becomes a segment, and after `lead` an entry of a journal: `seal`, `gather` and `consolidate` are
    the outcome of it. `create=False`: the topic is there already, of a broker; what that wrote is not remembered.
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
        self._journals: dict[int, StoredJournal] = {}
        if create:
            self.run(lambda topic: topic.create(partitions))

    def recreate(self) -> uuid.UUID:
        """Delete the topic and create an empty one of its name, without a leader; returns its id."""
        self._written, self._log_starts, self._journals = [], [0] * self.partitions, {}
        return self.run(StoredTopic.recreate)

    def topic_id(self) -> uuid.UUID:
        """The topic's id."""
        return self.run(StoredTopic.topic_id)

    def append(
        self,
        partition: int,
        records: Sequence[Sent],
        codec: Codec = Codec.NONE,
        *,
        batch_records: int | None = None,
        log_append_time_ms: int | None = None,
    ) -> list[Stored]:
        """Publish the records as one segment or entry, in batches of `batch_records`; returns them as stored."""
        batches = batches_of(
            records, codec, batch_records=batch_records, log_append_time_ms=log_append_time_ms
        )
        return self.append_batches(partition, batches)

    def append_batches(self, partition: int, batches: Sequence[Batch]) -> list[Stored]:
        """Publish the batches as one segment or entry; returns their records, without those of control batches."""
        if partition in self._journals:
            return self.append_entry({partition: batches})
        return self._remember(partition, batches, self.run(lambda topic: topic.append(partition, batches)))

    def append_entry(self, batches: Mapping[int, Sequence[Batch]]) -> list[Stored]:
        """Publish the batches of all these partitions as one entry of their leader; as `append_batches`."""
        (journal,) = {id(found): found for found in map(self._journals.__getitem__, batches)}.values()
        written = self.run(lambda topic: journal.flush(topic, batches))
        return [
            one
            for partition, records in written.items()
            for one in self._remember(partition, batches[partition], records)
        ]

    def _remember(self, partition: int, batches: Sequence[Batch], records: Sequence[Record]) -> list[Stored]:
        written = iter(records)
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

        Give the next records a `gap`, or the next append meets the object. It is an older broker's.
        """
        assert partition not in self._journals
        return self.run(lambda topic: topic.leave_unpublished(partition, batches_of(records, codec)))

    def new_leader(self, partition: int) -> int:
        """Let another leader go on, an older broker; returns its leader epoch."""
        assert partition not in self._journals
        return self.run(lambda topic: topic.new_leader(partition))

    def lead(self, *partitions: int) -> None:
        """Let a broker claim these partitions, all by default: its journal has what is appended from now on."""
        journal = StoredJournal(f"1-w{next(_journals)}")
        led = partitions or tuple(range(self.partitions))

        async def claim(topic: StoredTopic) -> None:
            for partition in led:
                last = self._journals.pop(partition, None)
                if last is not None:
                    await last.consolidate(topic, partition)
                    del last.ends[partition]
            await journal.lead(topic, led)

        self.run(claim)
        self._journals |= dict.fromkeys(led, journal)

    def lose_leader(self, partition: int, records: Sequence[Sent], codec: Codec = Codec.NONE) -> str:
        """End the partition's journal; the records are in an entry that is not committed, whose key is returned.

        All partitions that the journal had are to be claimed by `lead` then.
        """
        journal = self._journals[partition]
        return self.run(lambda topic: journal.end(topic, {partition: batches_of(records, codec)}))

    def consolidate(self, *partitions: int) -> None:
        """Bring the records of these partitions up to date, all that are led by default: they name the slices."""
        self._after(StoredJournal.consolidate, partitions)

    def seal(self, *partitions: int) -> None:
        """Make a segment of the slices of each of these partitions, all that are led by default."""
        self._after(StoredJournal.seal, partitions)

    def gather(self, *partitions: int) -> None:
        """Make one object of the slices of these partitions, all that are led by default."""
        self._after(StoredJournal.gather, partitions)

    def _after(self, change: Change, partitions: Sequence[int]) -> None:
        """Change what these have in journals, and delete the entries that are not needed any more."""
        journals = [self._journals[one] for one in partitions] or list(self._journals.values())

        async def changed(topic: StoredTopic) -> None:
            for journal in {id(one): one for one in journals}.values():
                await change(
                    journal, topic, *(one for one in partitions or journal.ends if one in journal.ends)
                )
                await journal.collect(topic)

        self.run(changed)

    def write_checkpoint(self, partition: int) -> None:
        """Move every reference from the partition's record into a checkpoint; its slices are sealed first."""
        self._seal_first(partition)
        self.run(lambda topic: topic.write_checkpoint(partition))

    def merge(
        self,
        partition: int,
        first_offset: int = 0,
        last_offset: int = 2**63 - 1,
        *,
        keeps_sources: bool = False,
    ) -> None:
        """Merge neighbouring segments into one and delete them, unless they are kept for a grace period.

        Slices are sealed first.
        """
        self._seal_first(partition)
        self.run(lambda topic: topic.merge(partition, first_offset, last_offset, keeps_sources=keeps_sources))

    def move_log_start(self, partition: int, offset: int, *, keeps_objects: bool = False) -> None:
        """Let what is below `offset` expire, in segments and in slices.

        Entries can be collected once all records that are led are up to date.
        """
        if partition in self._journals:
            self.consolidate()
        self.run(lambda topic: topic.move_log_start(partition, offset, keeps_objects=keeps_objects))
        if partition in self._journals and not keeps_objects:
            self.run(self._journals[partition].collect)
        self._log_starts[partition] = offset

    def log_end_offset(self, partition: int) -> int:
        """The offset after the last published one."""
        journal = self._journals.get(partition)
        if journal is not None:
            return journal.ends[partition]
        return self.run(lambda topic: topic.record(partition)).log_end_offset

    def _seal_first(self, partition: int) -> None:
        if partition in self._journals:
            self.seal(partition)

    @property
    def is_led(self) -> bool:
        """True if all partitions have a journal."""
        return len(self._journals) == self.partitions

    def has_objects(self, partition: int) -> bool:
        """True if something of the partition was ever written."""
        return any(record.partition == partition for record in self._written)

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
