"""Finds expired segments by Kafka's rules of retention. Pure; driven by retention_enforcer.py.

Kafka's rules (UnifiedLog.deleteOldSegments): whole segments expire, from the oldest on, until one may stay. First by
size: a segment expires while the others without it still have `retention.bytes`, so that no less is ever kept. The
others then expire by time: a segment whose largest timestamp is more than `retention.ms` ago; one whose records carry
no timestamp by its age. A timestamp in the future keeps its segment, and all after it, until then. The newest segment
may expire as well. Without `delete` in cleanup.policy none does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.topic_config_table import CleanupPolicy
from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.partition_record import SegmentReference

SHARE_OF_RETENTION: Final = 10
"""The part of a partition's retention that a merged segment may span: it expires as a whole, with its newest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """`retention.ms` and `retention.bytes` in effect; a negative one is no limit."""

    retention_ms: int
    retention_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The expired segments at the start of a log: `over_size` of them, and `too_old` ones after these.

    `is_undecided`: the next segment has no timestamp and its age is unknown. Otherwise `due_ms` is when the next
    one expires if nothing is appended meanwhile; None if none ever will.
    """

    over_size: int
    too_old: int
    is_undecided: bool
    due_ms: int | None

    @property
    def count(self) -> int:
        """The number of expired segments."""
        return self.over_size + self.too_old


def limits_of(config: TopicConfig) -> RetentionLimits | None:
    """The limits of a topic's partitions; None if their segments never expire."""
    if CleanupPolicy.DELETE not in config.cleanup_policy:
        return None
    limits = RetentionLimits(retention_ms=config.retention_ms, retention_bytes=config.retention_bytes)
    return limits if limits.retention_ms >= 0 or limits.retention_bytes >= 0 else None


def span_limit_ms(config: TopicConfig) -> int | None:
    """How far the newest timestamps of segments that become one may be apart; None for any distance.

    A segment expires as a whole, with its newest record.
    """
    limits = limits_of(config)
    if limits is None or limits.retention_ms < 0:
        return None
    return limits.retention_ms // SHARE_OF_RETENTION


def expiry(
    references: Iterable[SegmentReference],
    size_bytes: int,
    limits: RetentionLimits,
    now_ms: int,
    created_ms: Mapping[int, int],
) -> Expiry:
    """The expired segments. `references`: those of the whole log, ascending, `size_bytes` together.

    `created_ms`: when segments were written, by base offset, as far as known; only used for those without a
    timestamp. Reads one reference more than have expired.
    """
    remaining = iter(references)
    surplus_bytes = size_bytes - limits.retention_bytes if limits.retention_bytes >= 0 else -1
    over_size = too_old = 0
    reference = next(remaining, None)
    while reference is not None and surplus_bytes >= reference.size_bytes:
        surplus_bytes -= reference.size_bytes
        over_size += 1
        reference = next(remaining, None)
    is_undecided, due_ms = False, None
    while reference is not None and limits.retention_ms >= 0:
        timestamp_ms = _timestamp_ms(reference, created_ms)
        is_undecided = timestamp_ms is None
        if timestamp_ms is None:
            break
        if now_ms - timestamp_ms <= limits.retention_ms:
            due_ms = timestamp_ms + limits.retention_ms + 1
            break
        too_old += 1
        reference = next(remaining, None)
    return Expiry(over_size=over_size, too_old=too_old, is_undecided=is_undecided, due_ms=due_ms)


def is_undated(reference: SegmentReference) -> bool:
    """True if no record of the segment carries a timestamp, so that its age counts."""
    return reference.max_timestamp_ms < 0


def _timestamp_ms(reference: SegmentReference, created_ms: Mapping[int, int]) -> int | None:
    if is_undated(reference):
        return created_ms.get(reference.base_offset)
    return reference.max_timestamp_ms
