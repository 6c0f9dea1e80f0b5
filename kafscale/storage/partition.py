"""One partition as this broker holds it: what is published, who waits for more, and the log when it leads."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kafscale.metadata.partition_record import PartitionRecord
from kafscale.metadata.topic_configs import TopicConfig
from kafscale.storage.checkpoint import Checkpoint
from kafscale.storage.partition_log import AppendRules, PartitionLog
from kafscale.storage.producer_state import ProducerStates
from kafscale.storage.references import SegmentReferences


class PublishListener(Protocol):
    """Who waits for new records of a partition, a fetch for one."""

    def grown(self, size_bytes: int) -> None:
        """`size_bytes` more were published."""

    def closed(self) -> None:
        """The partition is not served here any more."""


@dataclass(frozen=True, slots=True)
class PartitionId:
    """A partition's name."""

    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Partition:
    """A partition's published state and, for the leader, its log.

    `record` and `revision` are as the metadata store holds them. `references` is None until the checkpoint
    that the record names has been read; `log` is None while the partition is not led or not open. `number` is
    this object's own: a topic that is deleted and made again has partitions with other numbers.
    """

    __slots__ = (
        "_listeners",
        "config",
        "flush_scheduled",
        "flush_task",
        "id",
        "is_led",
        "log",
        "number",
        "record",
        "record_lock",
        "references",
        "revision",
        "rules",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        number: int,
        record: PartitionRecord,
        revision: int,
        config: TopicConfig,
        rules: AppendRules,
    ) -> None:
        self.id = partition_id
        self.number = number
        self.record = record
        self.revision = revision
        self.config = config
        self.rules = rules
        self.is_led = True
        self.log: PartitionLog | None = None
        self.references: SegmentReferences | None = None
        self.record_lock = asyncio.Lock()
        self.flush_task: asyncio.Task[None] | None = None
        self.flush_scheduled = False
        self._listeners: set[PublishListener] | None = None

    @property
    def high_watermark(self) -> int:
        """The end of what consumers see: the log end offset of the last published segment."""
        return self.record.log_end_offset

    def open(self, checkpoint: Checkpoint) -> PartitionLog:
        """Complete the state with the checkpoint that the record names (an empty one for none)."""
        start = self.record.log_start_offset
        self.references = SegmentReferences(
            reference
            for reference in (*checkpoint.segments, *self.record.segments)
            if reference.last_offset >= start
        )
        self.log = PartitionLog(self.record, ProducerStates((*checkpoint.producers, *self.record.producers)))
        return self.log

    def publish(self, record: PartitionRecord, revision: int) -> None:
        """The metadata store holds `record`, written by this broker, at `revision`."""
        newest = record.segments[-1:] if record.log_end_offset > self.record.log_end_offset else ()
        self.record = record
        self.revision = revision
        if self.references is not None:
            for reference in newest:
                self.references.append(reference)

    def listen(self, listener: PublishListener) -> None:
        """Tell the listener from now on."""
        if self._listeners is None:
            self._listeners = set()
        self._listeners.add(listener)

    def forget(self, listener: PublishListener) -> None:
        """Tell the listener no more."""
        if self._listeners is not None:
            self._listeners.discard(listener)

    def notify_grown(self, size_bytes: int) -> None:
        """Tell who waits that more is published."""
        for listener in self._take_listeners():
            listener.grown(size_bytes)

    def notify_closed(self) -> None:
        """Tell who waits that there is nothing to wait for."""
        for listener in self._take_listeners():
            listener.closed()

    def _take_listeners(self) -> Iterable[PublishListener]:
        return tuple(self._listeners) if self._listeners else ()
