"""One partition that this broker leads or follows: what is published, who listens, and the leader's log."""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.formats.partition_transactions import TransactionEvent, after_events, without_aborted_below
from kafscale.log.batch_append import AppendRules
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.leadership.events import Act, Event
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.references import SegmentReferences

logger = logging.getLogger(__name__)

NO_TOPIC_ID = uuid.UUID(int=0)
NOT_LED = -1
"""In place of a claim's revision: another broker leads."""
SIZE_UNKNOWN = 2**31 - 1
"""In place of the size of what is published: enough for every listener, which looks for itself then."""


class PublishListener(Protocol):
    """Waits for new records of a partition, as a fetch does."""

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        """`size_bytes` more were published, and about `stable_bytes` are newly below the last stable offset."""

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

    `record` is what is published: the record at `revision` of the metadata store, and what the leader's journal has
    behind it. `journal` is that of this broker, where it leads. `leadership` says whether this broker leads the
    partition, and what may be done with it. `references`, and all `aborted` transactions, are None until the
    checkpoint that the record names has been read; `log` is None before the log is opened, and after it is closed.
    `number` identifies the partition in this process: a topic that is deleted and created again has partitions with
    other numbers. `led_since_revision` is that of the claim, `NOT_LED` if another broker leads.
    """

    __slots__ = (
        "__weakref__",
        "_listeners",
        "_stable_end_offset",
        "aborted",
        "applied_sequence",
        "checkpoint_lock",
        "compares_epochs",
        "config",
        "id",
        "journal",
        "leadership",
        "led_since_revision",
        "log",
        "number",
        "record",
        "record_lock",
        "references",
        "revision",
        "rules",
        "topic_id",
        "unstored_from",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        number: int,
        record: PartitionRecord,
        revision: int,
        config: TopicConfig,
        rules: AppendRules,
        led_since_revision: int,
        leadership: PartitionLeadership | None = None,
    ) -> None:
        self.id = partition_id
        self.topic_id = NO_TOPIC_ID
        self.journal: BrokerJournal | None = None
        # The newest entry of the journal with a slice that is in `record`.
        self.applied_sequence = -1
        # The oldest entry that may have a slice which is in `record` and not in the stored record.
        self.unstored_from: int | None = None
        self.number = number
        self.record = record
        self.revision = revision
        self.config = config
        self.rules = rules
        self.led_since_revision = led_since_revision
        started = State.FOLLOWING if led_since_revision == NOT_LED else State.OPENING
        self.leadership = leadership or PartitionLeadership(started)
        self.log: PartitionLog | None = None
        self.references: SegmentReferences | None = None
        self.aborted: AbortedTransactions | None = None
        self.record_lock = asyncio.Lock()
        self.checkpoint_lock: asyncio.Lock | None = None
        # True while a segment with other leader epochs than the record's may be another topic's: until the
        # metadata store has shown that this log has such segments.
        self.compares_epochs = True
        self._listeners: dict[PublishListener, None] | None = None
        # The last stable offset that listeners know of.
        self._stable_end_offset = record.last_stable_offset

    @property
    def is_led(self) -> bool:
        """True if this broker leads it, as far as this broker knows."""
        return self.leadership.rights.leads

    @property
    def is_followed(self) -> bool:
        """True if this broker has never led it, so that all it knows is what the leader publishes."""
        return self.leadership.rights.follows

    @property
    def high_watermark(self) -> int:
        """The end of what consumers see: the log end offset of the last published segment."""
        return self.record.log_end_offset

    def load(self, checkpoint: Checkpoint) -> None:
        """Complete the references with the checkpoint that the record names (an empty one for none)."""
        start = self.record.log_start_offset
        self.references = SegmentReferences(
            reference
            for reference in (*checkpoint.segments, *self.record.segments)
            if reference.last_offset >= start
        )
        self.aborted = AbortedTransactions(checkpoint.aborted)
        self._add_aborted()

    def _add_aborted(self) -> None:
        """Add what the record has of newly aborted transactions, and remove those below the log start offset."""
        if self.aborted is not None:
            self.aborted.add_newer(self.record.transactions.aborted)
            self.aborted.drop_below(self.record.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers see."""
        return self.record.last_stable_offset

    def open(self, checkpoint: Checkpoint) -> PartitionLog | None:
        """The same, and open the leader's log if the partition is elected and it is not open yet; returns it."""
        self.load(checkpoint)
        if Act.OPEN_LOG in self.leadership.apply(Event.LOADED):
            producers = ProducerStates(
                (*checkpoint.producers, *self.record.producers), self.record.transactions.open
            )
            self.log = PartitionLog(self.record, producers, self.leadership)
        return self.log

    def follow(self, record: PartitionRecord, revision: int) -> None:
        """The leader wrote `record` at `revision` of the metadata store; an older one is ignored.

        Not for a partition that this broker leads, or led until a moment ago: its log may still be published,
        and must find out by the revision that another leader came between.
        """
        assert self.is_followed
        if revision <= self.revision:
            return
        record = _with_what_is_ahead(record, self.record)
        known_end = self.record.log_end_offset
        unknown = [segment for segment in record.segments if segment.last_offset >= known_end]
        fresh = [segment for segment in unknown if segment.base_offset >= known_end]
        if known_end < max(record.checkpoint_end_offset, record.transactions.aborted_from) or len(
            fresh
        ) < len(unknown):
            # Some of what is new is in the checkpoint only, or in a segment that begins below it.
            self.references = self.aborted = None
        if self.references is not None:
            for segment in fresh:
                self.references.append(segment)
            self.references.drop_below(record.log_start_offset)
        self.record = record
        self.revision = revision
        self._add_aborted()
        if record.log_end_offset > known_end:
            is_all_named = unknown and known_end >= record.checkpoint_end_offset
            self.notify_grown(
                sum(segment.size_bytes for segment in unknown) if is_all_named else SIZE_UNKNOWN
            )

    def follow_slice(
        self, reference: SegmentReference, sequence: int, events: Iterable[TransactionEvent] = ()
    ) -> int | None:
        """The leader's journal has a slice of the partition, with these events; one that is known is ignored.

        Returns the bytes that are new, with which the caller notifies the listeners; None if something before the
        slice is not known: the record must be read.
        """
        record = self.record
        if record.journal is None or reference.last_offset < record.log_end_offset:
            return 0
        if reference.leader_epoch != record.leader_epoch or reference.base_offset != record.log_end_offset:
            return None
        if self.references is not None:
            self.references.append(reference)
        self.record = replace(
            record,
            log_end_offset=reference.last_offset + 1,
            segments=(*record.segments, reference),
            journal=replace(record.journal, sequence=sequence),
            transactions=after_events(record.transactions, events),
        )
        self._add_aborted()
        return reference.size_bytes

    def publish(self, record: PartitionRecord, reference: SegmentReference, sequence: int) -> None:
        """A segment of this broker was committed, with the entry `sequence` of its journal."""
        self.record = record
        self.applied_sequence = sequence
        if self.unstored_from is None:
            self.unstored_from = sequence
        if self.references is not None:
            self.references.append(reference)
        self._add_aborted()

    def stored(self, record: PartitionRecord, revision: int, sequence: int) -> None:
        """This broker wrote the record at `revision` of the metadata store; `record` is what is published since.

        What was written has every slice up to the entry `sequence`.
        """
        self.record = record
        self.revision = revision
        self._add_aborted()
        self.unstored_from = sequence + 1 if self.applied_sequence > sequence else None

    def listen(self, listener: PublishListener) -> None:
        """Notify the listener from now on."""
        if self._listeners is None:
            self._listeners = {}
        self._listeners[listener] = None

    def forget(self, listener: PublishListener) -> None:
        """Stop notifying the listener."""
        if self._listeners is not None:
            self._listeners.pop(listener, None)

    @property
    def has_listeners(self) -> bool:
        """True if a listener waits for more."""
        return bool(self._listeners)

    def notify_grown(self, size_bytes: int) -> None:
        """Notify the listeners that so much more is published; of nothing they need not hear."""
        if not size_bytes:
            return
        before, self._stable_end_offset = self._stable_end_offset, self.record.last_stable_offset
        listeners = self._take_listeners()
        if listeners:
            stable_bytes = self._stable_bytes_from(before, size_bytes)
            for listener in listeners:
                try:
                    listener.grown(size_bytes, stable_bytes)
                except Exception:
                    # Not the caller's: a flush goes on, and so does a follower.
                    logger.exception("could not wake who waits", extra={"partition": str(self.id)})

    def _stable_bytes_from(self, offset: int, size_bytes: int) -> int:
        """About the bytes from the offset on that are stable: of whole segments, the last of `size_bytes`."""
        end_offset = self.record.last_stable_offset
        if end_offset <= offset:
            return 0
        if self.references is None or size_bytes == SIZE_UNKNOWN:
            return size_bytes
        return sum(
            reference.size_bytes
            for reference in takewhile(
                lambda reference: reference.base_offset < end_offset, self.references.from_offset(offset)
            )
        )

    def notify_closed(self) -> None:
        """Notify the listeners that the partition is not served here any more."""
        for listener in self._take_listeners():
            listener.closed()

    def _take_listeners(self) -> tuple[PublishListener, ...]:
        return tuple(self._listeners) if self._listeners else ()


def _with_what_is_ahead(record: PartitionRecord, known: PartitionRecord) -> PartitionRecord:
    """The record, and what is known of the same leader's journal behind it."""
    if record.leader_epoch != known.leader_epoch or record.log_end_offset >= known.log_end_offset:
        return record
    ahead = tuple(one for one in known.segments if one.base_offset >= record.log_end_offset)
    if record.journal is None or not ahead or ahead[0].base_offset != record.log_end_offset:
        return record
    return replace(
        record,
        log_end_offset=known.log_end_offset,
        segments=(*record.segments, *ahead),
        journal=known.journal,
        transactions=without_aborted_below(known.transactions, record.transactions.aborted_from),
    )
