"""Checks one partition: looks at it, and looks again before anything is said.

A second look makes a check beside running brokers report only what stays: a finding counts when both
looks have it, and an orphan when both give it the same reason.
"""

import asyncio
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Protocol

from kafscale.formats import object_keys
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.objects.object_store import ObjectInfo
from kafscale.tasks.bounded import map_bounded
from kafscale.tools.fsck.comparison import Look, compare, not_listed
from kafscale.tools.fsck.findings import Finding, FindingKind, PartitionReport, Standing
from kafscale.tools.fsck.orphans import orphans_without_partition
from kafscale.tools.fsck.partition_state import read_partition
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.verification import verify

_NOT_WORTH_READING = (FindingKind.SEGMENT_MISSING, FindingKind.SEGMENT_SIZE)


class Progress(Protocol):
    """Receives the progress of a check."""

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
        # Of every segment that is being read a piece is held.
        self._segments = asyncio.Semaphore(reading.concurrency)

    async def check(
        self, topic: str, partition: int, listed: Sequence[ObjectInfo], checkpoints: Sequence[ObjectInfo]
    ) -> PartitionReport:
        """The report of the partition, whose objects were listed before. Raises `StoreError`."""
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
        state = await read_partition(self._reading, topic, partition)
        objects = [*listed, *checkpoints]
        if state.record is None:
            is_unjudged = state.standing is Standing.UNJUDGED
            return PartitionReport(
                topic=topic,
                partition=partition,
                standing=state.standing,
                findings=() if state.finding is None else (state.finding,),
                orphans=() if is_unjudged else orphans_without_partition(state.standing, objects),
                unjudged_objects=len(objects) if is_unjudged else 0,
            )
        look = Look(
            namespace=self._reading.namespace,
            topic=topic,
            partition=partition,
            record=state.record,
            checkpoint=state.checkpoint,
            checkpoint_finding=state.finding,
            listed=listed,
            checkpoints=checkpoints,
        )
        look = replace(look, looked_up=await self._reading.sizes(not_listed(look)))
        report = compare(look)
        if not self._verifies:
            return report
        return replace(report, findings=await self._verify(look, report.findings, suspects))

    async def _verify(
        self, look: Look, findings: Sequence[Finding], suspects: Container[str] | None
    ) -> tuple[Finding, ...]:
        known = {finding.key for finding in findings if finding.kind in _NOT_WORTH_READING}

        async def of_segment(reference: SegmentReference) -> Sequence[Finding]:
            async with self._segments:
                found = await verify(self._reading, look, reference)
            self._progress.verified(look.key_of(reference), reference.size_bytes)
            return found

        wanted = [
            reference
            for reference in look.references
            # Slices are read with the objects that they lie in: journal_check.py.
            if not is_unsealed_key(key := look.key_of(reference))
            and key not in known
            and (suspects is None or key in suspects)
        ]
        limit = min(self._reading.concurrency, max(1, len(wanted)))
        found = await map_bounded(of_segment, wanted, limit)
        seen = {finding.identity for finding in findings}
        more = [one for of_one in found for one in of_one if one.identity not in seen]
        return (*findings, *more)


def confirmed(first: PartitionReport, second: PartitionReport) -> PartitionReport:
    """The second look, with only those findings and orphans that the first one had, too."""
    findings = {finding.identity for finding in first.findings}
    orphans = {(orphan.key, orphan.reason) for orphan in first.orphans}
    return replace(
        second,
        findings=tuple(finding for finding in second.findings if finding.identity in findings),
        orphans=tuple(orphan for orphan in second.orphans if (orphan.key, orphan.reason) in orphans),
        unjudged_objects=min(first.unjudged_objects, second.unjudged_objects),
    )


def _segment_key(key: str) -> str:
    return object_keys.segment_key_of(key) if key.endswith(".index") else key
