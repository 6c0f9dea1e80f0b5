"""A partition at one moment by the metadata store and the checkpoint that it names."""

from dataclasses import dataclass

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.formats.partition_record import PartitionRecord, SegmentReference, decode_partition_record
from kafscale.formats.topic_record import decode_topic_record
from kafscale.journal.replay import EntryMissingError
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import KeyValue
from kafscale.tools.fsck.findings import Finding, FindingKind, Standing
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.record_check import published_references
from kafscale.tools.recovery.rebuild import patiently


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as it stands. `record` and its `revision` only for one that is active.

    `checkpoint`: an empty one where the record names none, None where it cannot be used; then, as where there
    is no record to go by, `finding` says why.
    """

    standing: Standing
    record: PartitionRecord | None = None
    revision: int = 0
    checkpoint: Checkpoint | None = None
    finding: Finding | None = None

    @property
    def references(self) -> tuple[SegmentReference, ...] | None:
        """Everything that is published, None when that is not known."""
        if self.record is None or self.checkpoint is None:
            return None
        return published_references(self.record, self.checkpoint)


async def read_partition(reading: Reading, topic: str, partition: int) -> PartitionState:
    """The partition as it stands now. Raises `StoreError`."""
    key = keys.partition(topic, partition)
    subject = f"{topic}-{partition}"
    held_topic, retired, held = await reading.read_metadata(keys.topic(topic), keys.retired(topic), key)
    try:
        found = None if held_topic is None else decode_topic_record(held_topic.key, held_topic.value)
    except CorruptDataError:
        # Told of the topic, once.
        return PartitionState(standing=Standing.UNJUDGED)
    standing = _standing(found, retired, partition)
    if standing is not Standing.ACTIVE:
        return PartitionState(standing=standing)
    if held is None:
        finding = Finding(kind=FindingKind.RECORD_MISSING, subject=subject)
        return PartitionState(standing=Standing.UNJUDGED, finding=finding)
    try:
        record = decode_partition_record(key, held.value)
    except CorruptDataError as problem:
        finding = Finding(kind=FindingKind.RECORD_UNREADABLE, subject=subject, detail=problem.problem)
        return PartitionState(standing=Standing.UNJUDGED, finding=finding)
    try:
        state = await patiently(lambda: reading.state(topic, partition))
    except (CorruptDataError, EntryMissingError) as problem:
        finding = Finding(kind=FindingKind.JOURNAL_GAP, subject=subject, detail=str(problem))
        return PartitionState(standing=Standing.UNJUDGED, finding=finding)
    if state is None:
        return PartitionState(standing=Standing.UNJUDGED)  # deleted meanwhile
    record, revision = state
    checkpoint, bad = await _load_checkpoint(reading, subject, record)
    return PartitionState(
        standing=standing,
        record=record,
        revision=revision,
        checkpoint=checkpoint,
        finding=bad,
    )


def _standing(topic: TopicRecord | None, retired: KeyValue | None, partition: int) -> Standing:
    if topic is None:
        return Standing.NO_TOPIC if retired is None else Standing.TOPIC_DELETED
    if topic.state is TopicState.DELETING:
        return Standing.TOPIC_DELETING
    return Standing.ACTIVE if partition < topic.partition_count else Standing.NO_PARTITION


async def _load_checkpoint(
    reading: Reading, subject: str, record: PartitionRecord
) -> tuple[Checkpoint | None, Finding | None]:
    key = record.checkpoint_key
    if not key:
        return EMPTY_CHECKPOINT, None
    try:
        return decode_checkpoint(key, await reading.get(key)), None
    except ObjectNotFoundError:
        kind, detail = FindingKind.CHECKPOINT_MISSING, ""
    except CorruptDataError as problem:
        kind, detail = FindingKind.CHECKPOINT_DAMAGED, problem.problem
    return None, Finding(
        kind=kind,
        subject=subject,
        detail=detail,
        key=key,
        first_offset=record.log_start_offset,
        last_offset=record.checkpoint_end_offset - 1,
    )
