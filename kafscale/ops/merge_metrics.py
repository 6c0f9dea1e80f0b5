"""The counters of merging; who counts: `log/life/merger.py`."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops import metric_families as families
from kafscale.ops.counted import counted, counted_by


class MergeOutcome(StrEnum):
    """The outcome of a merge. `GIVEN_UP`: the partition is led elsewhere, or the segments expired."""

    PUBLISHED = "published"
    GIVEN_UP = "given_up"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class MergeMetrics:
    """Segments that were rewritten as larger ones."""

    outcomes: Counter[str] = counted_by(families.MERGES, MergeOutcome)
    sources: int = counted(families.MERGED_SEGMENTS)
    bytes: int = counted(families.MERGED_BYTES)

    def count(self, outcome: MergeOutcome) -> None:
        """Count a merge that did not come to its end."""
        self.outcomes[outcome] += 1

    def published(self, sources: int, size_bytes: int) -> None:
        """Count a merge of so many segments, none when they expired meanwhile."""
        self.outcomes[MergeOutcome.PUBLISHED if sources else MergeOutcome.GIVEN_UP] += 1
        self.sources += sources
        self.bytes += size_bytes
