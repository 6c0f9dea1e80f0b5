"""The counters of compaction; who counts: `log/compaction/compactor.py`."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops import metric_families as families
from kafscale.ops.counted import counted, counted_by


class CompactionOutcome(StrEnum):
    """The outcome of a compaction. `GIVEN_UP`: the partition is led elsewhere, or its segments have changed."""

    DONE = "done"
    GIVEN_UP = "given_up"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class CompactionMetrics:
    """Partitions that were compacted, and what came of it."""

    outcomes: Counter[str] = counted_by(families.COMPACTIONS, CompactionOutcome)
    seconds: float = counted(families.COMPACTION_SECONDS)
    removed_records: int = counted(families.COMPACTION_REMOVED_RECORDS)
    replaced_bytes: int = counted(families.COMPACTION_READ_BYTES)
    written_bytes: int = counted(families.COMPACTION_WRITTEN_BYTES)

    def count(self, outcome: CompactionOutcome) -> None:
        """Count a compaction that has ended."""
        self.outcomes[outcome] += 1

    def rewrote(self, removed_records: int, replaced_bytes: int, written_bytes: int) -> None:
        """Count a segment that was published in the place of others."""
        self.removed_records += removed_records
        self.replaced_bytes += replaced_bytes
        self.written_bytes += written_bytes
