"""The records of a topic at some offsets, in one process: planned and decoded like those of a task of Spark's."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from kafscale.arrow.split_columns import read_split
from kafscale.broker.stores import open_for_reading
from kafscale.lake.held_export import HeldExport
from kafscale.lake.planned_reads import plan_reads
from kafscale.lake.ranges import Ranges
from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.topic_state import TopicLog, TopicStates
from kafscale.settings.broker import Settings

OnSkipped = Callable[[int], None]
"""Receives numbers of records that are read and not brought: of markers, and of aborted transactions."""


class OpenRecords(Protocol):
    """Reads the topic's records at these offsets, by partition, with the columns of the source."""

    def __call__(
        self, ranges: Mapping[int, Ranges], on_skipped: OnSkipped = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        """The records, batch by batch."""
        ...


def records_of(settings: Settings, held: HeldExport) -> OpenRecords:
    """Opens the records of the held topic, batch by batch."""

    def open_records(
        ranges: Mapping[int, Ranges], on_skipped: OnSkipped = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        for split in held.splits(ranges):
            yield from read_split(settings, split, include_headers=True, on_skipped=on_skipped)

    return open_records


class FreeTopic:
    """A topic without a lease, which others may export meanwhile."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._topic_id: UUID | None = None

    def log(self) -> TopicLog:
        """The topic as it is now; from the second time on the same one as the first time.

        Raises `UnknownTopicError`, `TopicReplacedError`, `StoreError`, `CorruptDataError`, `StartupError`.
        """

        async def read() -> TopicLog:
            async with contextlib.AsyncExitStack() as stack:
                metadata, objects = await open_for_reading(self._settings, stack)
                states = TopicStates(metadata, objects, self._settings.s3_namespace, wants=self._is_this)
                return await states.topic(self._topic, topic_id=self._topic_id)

        log = asyncio.run(read())
        self._topic_id = log.topic_id
        return log

    def records(self, ranges: Mapping[int, Ranges]) -> Iterator[pa.RecordBatch]:
        """The records at these offsets of the topic that `log` has read.

        Raises `ExpiredRangeError`, too, for those that are gone meanwhile.
        """
        for split in asyncio.run(self._plan(ranges)):
            yield from read_split(self._settings, split, include_headers=True)

    async def _plan(self, ranges: Mapping[int, Ranges]) -> list[AnySplit]:
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_for_reading(self._settings, stack)
            namespace = self._settings.s3_namespace
            states = TopicStates(metadata, objects, namespace, wants=self._is_this)
            assert self._topic_id is not None, "the log is read first"
            return await plan_reads(states, objects, namespace, self._topic, self._topic_id, ranges)

    def _is_this(self, topic: str) -> bool:
        return topic == self._topic
