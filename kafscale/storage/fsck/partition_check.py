"""Checks one partition: looks at it, and looks again before anything is said.

A second look is what makes a check beside running brokers tell only what stays: a finding counts when both
looks have it, and an orphan when both have listed it.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Protocol

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.partition_record import PartitionRecord, SegmentReference, decode_partition_record
from kafscale.metadata.store import KeyValue
from kafscale.metadata.topic_record import decode_topic_record
from kafscale.storage import object_keys
from kafscale.storage.bounded import map_bounded
from kafscale.storage.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.storage.fsck.comparison import Look, compare, not_listed
from kafscale.storage.fsck.findings import Finding, FindingKind, PartitionReport, Standing
from kafscale.storage.fsck.orphans import orphans_without_partition
from kafscale.storage.fsck.reading import Reading
from kafscale.storage.fsck.verification import verify
from kafscale.storage.object_store import ObjectInfo

_NOT_WORTH_READING = (FindingKind.SEGMENT_MISSING, FindingKind.SEGMENT_SIZE)


class Progress(Protocol):
    """Who is told how far a check has come."""

    def checked(self, partition: str, objects: int) -> None:
        """One more partition was compared with its objects, so many."""

    def verified(self, key: str, size_bytes: int) -> None:
        """One more segment was read."""


class PartitionCheck:
    """Checks partitions of one cluster. `verifies`: whether every byte of their segments is read."""

    def __init__(self, reading: Reading, progress: Progress, *, verifies: bool) -> None:
        self._reading = reading
        self._progress = progress
        self._verifies = verifies

    async def check(
        self, topic: str, partition: int, listed: Sequence[ObjectInfo], checkpoints: Sequence[ObjectInfo]
    ) -> PartitionReport:
        """What is to be said of the partition, whose objects were listed before. Raises `StoreError`."""
        first = await self._look(topic, partition, listed, checkpoints, None)
        self._progress.checked(first.name, len(listed))
        if not first.is_remarkable:
            return first
        suspects = {_segment_key(finding.key) for finding in first.findings if finding.key}
        listed = await self._reading.list_partition(topic, partition)
        checkpoints = await self._reading.list_checkpoints(topic, partition)
        second = await self._look(topic, partition, listed, checkpoints, suspects)
        return confirmed(first, second)

    async def _look(
        self,
        topic: str,
        partition: int,
        listed: Sequence[ObjectInfo],
        checkpoints: Sequence[ObjectInfo],
        suspects: Container[str] | None,
    ) -> PartitionReport:
        """`suspects`: keys of the segments that are verified; None for all."""
        key = keys.partition(topic, partition)
        held_topic, held = await self._reading.read_metadata(keys.topic(topic), key)
        objects = [*listed, *checkpoints]
        try:
            standing = _standing(held_topic, partition)
        except CorruptDataError:
            # Told of the topic, once.
            return _unjudged(topic, partition, objects)
        if standing is not Standing.ACTIVE:
            return PartitionReport(
                topic=topic,
                partition=partition,
                standing=standing,
                orphans=orphans_without_partition(standing, objects),
            )
        if held is None:
            return _unjudged(topic, partition, objects, FindingKind.RECORD_MISSING)
        try:
            record = decode_partition_record(key, held.value)
        except CorruptDataError as problem:
            return _unjudged(topic, partition, objects, FindingKind.RECORD_UNREADABLE, problem.problem)
        return await self._compare(topic, partition, record, listed, checkpoints, suspects)

    async def _compare(
        self,
        topic: str,
        partition: int,
        record: PartitionRecord,
        listed: Sequence[ObjectInfo],
        checkpoints: Sequence[ObjectInfo],
        suspects: Container[str] | None,
    ) -> PartitionReport:
        checkpoint, finding = await self._load_checkpoint(f"{topic}-{partition}", record)
        look = Look(
            namespace=self._reading.namespace,
            topic=topic,
            partition=partition,
            record=record,
            checkpoint=checkpoint,
            checkpoint_finding=finding,
            listed=listed,
            checkpoints=checkpoints,
        )
        look = replace(look, looked_up=await self._reading.sizes(not_listed(look)))
        report = compare(look)
        if not self._verifies:
            return report
        return replace(report, findings=await self._verify(look, report.findings, suspects))

    async def _load_checkpoint(
        self, subject: str, record: PartitionRecord
    ) -> tuple[Checkpoint | None, Finding | None]:
        key = record.checkpoint_key
        if not key:
            return EMPTY_CHECKPOINT, None
        try:
            return decode_checkpoint(key, await self._reading.get(key)), None
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

    async def _verify(
        self, look: Look, findings: Sequence[Finding], suspects: Container[str] | None
    ) -> tuple[Finding, ...]:
        known = {finding.key for finding in findings if finding.kind in _NOT_WORTH_READING}

        async def of_segment(reference: SegmentReference) -> Sequence[Finding]:
            found = await verify(self._reading, look, reference)
            self._progress.verified(look.key_of(reference), reference.size_bytes)
            return found

        wanted = [
            reference
            for reference in look.references
            if (key := look.key_of(reference)) not in known and (suspects is None or key in suspects)
        ]
        limit = min(self._reading.concurrency, max(1, len(wanted)))
        found = await map_bounded(of_segment, wanted, limit)
        seen = {finding.identity for finding in findings}
        more = [one for of_one in found for one in of_one if one.identity not in seen]
        return (*findings, *more)


def confirmed(first: PartitionReport, second: PartitionReport) -> PartitionReport:
    """The second look, with only those findings and orphans that the first one had, too."""
    findings = {finding.identity for finding in first.findings}
    orphans = {orphan.key for orphan in first.orphans}
    return replace(
        second,
        findings=tuple(finding for finding in second.findings if finding.identity in findings),
        orphans=tuple(orphan for orphan in second.orphans if orphan.key in orphans),
        unjudged_objects=min(first.unjudged_objects, second.unjudged_objects),
    )


def _standing(held: KeyValue | None, partition: int) -> Standing:
    """Raises `CorruptDataError`."""
    if held is None:
        return Standing.NO_TOPIC
    topic: TopicRecord = decode_topic_record(held.key, held.value)
    if topic.state is TopicState.DELETING:
        return Standing.TOPIC_DELETING
    return Standing.ACTIVE if partition < topic.partition_count else Standing.NO_PARTITION


def _unjudged(
    topic: str,
    partition: int,
    objects: Sequence[ObjectInfo],
    kind: FindingKind | None = None,
    detail: str = "",
) -> PartitionReport:
    finding = () if kind is None else (Finding(kind=kind, subject=f"{topic}-{partition}", detail=detail),)
    return PartitionReport(
        topic=topic,
        partition=partition,
        standing=Standing.UNJUDGED,
        findings=finding,
        unjudged_objects=len(objects),
    )


def _segment_key(key: str) -> str:
    return object_keys.segment_key_of(key) if key.endswith(".index") else key
