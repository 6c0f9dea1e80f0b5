"""The counters of journals: who counts is in `log/journal` and `log/writing`."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops import journal_metric_families as families
from kafscale.ops.counted import counted, counted_by, observed
from kafscale.ops.histogram import Histogram


class FenceEvent(StrEnum):
    """`WRITTEN`: in another broker's journal. `FOUND`: in this broker's own."""

    WRITTEN = "written"
    FOUND = "found"


@dataclass(slots=True, eq=False)
class JournalMetrics:
    """All journals of this broker: add to the attributes.

    `collected_at_sec`: when the last collection succeeded, by a clock that only goes forward.
    """

    entry_slices: Histogram = observed(families.ENTRY_SLICES)
    put: Histogram = observed(families.ENTRY_PUT)
    commit: Histogram = observed(families.ENTRY_COMMIT)
    budget_waits: int = counted(families.BUDGET_WAITS)
    budget_wait_sec: float = counted(families.BUDGET_WAIT_TIME)
    collected: int = counted(families.COLLECTED)
    replays: Histogram = observed(families.REPLAYS)
    replayed_entries: int = counted(families.REPLAYED_ENTRIES)
    followed_entries: int = counted(families.FOLLOWED_ENTRIES)
    fences: Counter[str] = counted_by(families.FENCES, FenceEvent)
    collected_at_sec: float = 0.0

    def waited_for_budget(self, seconds: float) -> None:
        """Count an entry that the budget of PUTs delayed; 0 for none."""
        if seconds:
            self.budget_waits += 1
            self.budget_wait_sec += seconds
