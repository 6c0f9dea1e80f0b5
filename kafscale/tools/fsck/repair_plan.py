"""The findings that can be repaired without any risk, and how. Pure; repair.py carries it out.

Each repair is decided again, on what the stores hold then, when its time has come: the plan says what is tried.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.tools.fsck.findings import (
    Finding,
    FindingKind,
    FsckReport,
    Orphan,
    OrphanReason,
    PartitionReport,
    Standing,
)


class RepairAction(StrEnum):
    """A kind of repair; the value is for people."""

    DROP_MISSING = "drop the references to objects that are gone: THEIR RECORDS ARE LOST, consumers skip them"
    REWRITE_INDEX = "rebuild indexes from their segments"
    DELETE_ORPHANS = "delete objects that nothing can ever refer to"
    DELETE_TOPIC_REST = "delete what is left of a topic that was deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing to do, for a partition or, for `DELETE_TOPIC_REST`, for a topic (`partition` is -1).

    `keys`: of the objects that are concerned. `needs_no_brokers`: what a running broker may interfere with.
    `lost`: first and last offsets that consumers will skip.
    """

    action: RepairAction
    topic: str
    partition: int = -1
    keys: tuple[str, ...] = ()
    needs_no_brokers: bool = False
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def subject(self) -> str:
        """The partition's or the topic's name."""
        return self.topic if self.partition < 0 else f"{self.topic}-{self.partition}"


_INDEXES: Final = (FindingKind.INDEX_MISSING, FindingKind.INDEX_DAMAGED, FindingKind.INDEX_LIES)

_DELETED: Final = frozenset(
    (
        OrphanReason.LEFTOVER,
        OrphanReason.SUPERSEDED,
        OrphanReason.UNPUBLISHED_MERGE,
        OrphanReason.EXPIRED,
        OrphanReason.INDEX_WITHOUT_SEGMENT,
        OrphanReason.OLD_CHECKPOINT,
    )
)

_DELETED_WITHOUT_BROKERS: Final = frozenset((OrphanReason.UNNAMED_CHECKPOINT, OrphanReason.NO_PARTITION))
"""A leader may be about to name the checkpoint, or a topic about to grow."""


def plan_repairs(report: FsckReport, before_ms: int, *, drops_missing: bool) -> tuple[Repair, ...]:
    """The repairs that can be made. Objects that changed since `before_ms`, Unix milliseconds, are not deleted.

    `drops_missing`: whether segments whose objects are gone may be given up. Nothing is repaired in a namespace
    that does not say whose it is: it may be another one than was meant.
    """
    if not report.has_marker:
        return ()
    repairs: list[Repair] = []
    for partition in report.partitions:
        if drops_missing:
            repairs += _dropping(partition)
        keys = tuple(finding.key for finding in partition.findings if finding.kind in _INDEXES)
        if keys:
            repairs.append(_of(partition, RepairAction.REWRITE_INDEX, keys))
        for reasons, needs_no_brokers in ((_DELETED, False), (_DELETED_WITHOUT_BROKERS, True)):
            keys = tuple(_old(partition.orphans, reasons, before_ms))
            if keys:
                repairs.append(
                    _of(partition, RepairAction.DELETE_ORPHANS, keys, needs_no_brokers=needs_no_brokers)
                )
    repairs += _topic_rests(report.partitions, before_ms)
    order = list(RepairAction)
    return tuple(sorted(repairs, key=lambda one: (order.index(one.action), one.topic, one.partition)))


def _dropping(partition: PartitionReport) -> Iterator[Repair]:
    missing = [finding for finding in partition.findings if finding.kind is FindingKind.SEGMENT_MISSING]
    if missing:
        yield _of(
            partition,
            RepairAction.DROP_MISSING,
            tuple(finding.key for finding in missing),
            needs_no_brokers=True,
            lost=tuple(_ranges(missing)),
        )


def _ranges(findings: Iterable[Finding]) -> Iterator[tuple[int, int]]:
    """The findings' offsets, neighbours joined."""
    start: int | None = None
    end = -1
    for finding in findings:
        assert finding.first_offset is not None and finding.last_offset is not None
        if start is not None and finding.first_offset != end + 1:
            yield start, end
            start = None
        start = finding.first_offset if start is None else start
        end = finding.last_offset
    if start is not None:
        yield start, end


def _old(orphans: Iterable[Orphan], reasons: frozenset[OrphanReason], before_ms: int) -> Iterator[str]:
    return (one.key for one in orphans if one.reason in reasons and one.modified_ms < before_ms)


def _topic_rests(partitions: Iterable[PartitionReport], before_ms: int) -> Iterator[Repair]:
    by_topic: dict[str, list[Orphan]] = defaultdict(list)
    for partition in partitions:
        if partition.standing is Standing.TOPIC_DELETED:
            by_topic[partition.topic] += partition.orphans
    for topic, orphans in by_topic.items():
        if orphans and all(orphan.modified_ms < before_ms for orphan in orphans):
            keys = tuple(orphan.key for orphan in orphans)
            yield Repair(action=RepairAction.DELETE_TOPIC_REST, topic=topic, keys=keys)


def _of(
    partition: PartitionReport,
    action: RepairAction,
    keys: tuple[str, ...],
    *,
    needs_no_brokers: bool = False,
    lost: tuple[tuple[int, int], ...] = (),
) -> Repair:
    return Repair(
        action=action,
        topic=partition.topic,
        partition=partition.partition,
        keys=keys,
        needs_no_brokers=needs_no_brokers,
        lost=lost,
    )
