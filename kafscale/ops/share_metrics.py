"""The counters of share groups; who counts: `share/partition/`."""

from dataclasses import dataclass
from typing import Final

from kafscale.ops import share_metric_families as families
from kafscale.ops.counted import counted, part

MAX_SHARE_GROUPS: Final = 1_000
"""Share groups with series of their own: a client that makes up groups must not fill what scrapes them."""

OTHER_SHARE_GROUPS: Final = "(others)"
"""Stands for the share groups beyond `MAX_SHARE_GROUPS`."""


@dataclass(slots=True, eq=False)
class ShareCounts:
    """Records of a share group, of all partitions that this broker leads or has led.

    `archived` ones have reached the delivery limit; `gaps` were never there, or are control records. `refused`: as
    `rejected`, among those that are archived.
    """

    acquired: int = counted(families.RECORDS_ACQUIRED)
    accepted: int = counted(families.RECORDS_ACKNOWLEDGED, "accept")
    released: int = counted(families.RECORDS_ACKNOWLEDGED, "release")
    rejected: int = counted(families.RECORDS_ACKNOWLEDGED, "reject")
    renewed: int = counted(families.RECORDS_ACKNOWLEDGED, "renew")
    timed_out: int = counted(families.RECORDS_TIMED_OUT)
    archived: int = counted(families.RECORDS_ARCHIVED, "deliveries")
    refused: int = counted(families.RECORDS_ARCHIVED, "rejected")
    gaps: int = counted(families.RECORDS_ARCHIVED, "gap")


@dataclass(slots=True, eq=False)
class ShareMetrics:
    """The share groups that read from this broker, by group id."""

    groups: dict[str, ShareCounts] = part(dict)

    def group(self, group_id: str) -> ShareCounts:
        """The group's counters, created at first use: name only groups that exist.

        Beyond `MAX_SHARE_GROUPS` they are those of `OTHER_SHARE_GROUPS`, so that sums over all groups stay right.
        """
        counts = self.groups.get(group_id)
        if counts is None:
            key = group_id if len(self.groups) < MAX_SHARE_GROUPS else OTHER_SHARE_GROUPS
            counts = self.groups.setdefault(key, ShareCounts())
        return counts

    def forget(self, group_id: str) -> None:
        """Export a deleted group no longer; no error when it was never counted."""
        self.groups.pop(group_id, None)
