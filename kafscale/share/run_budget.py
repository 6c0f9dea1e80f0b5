"""How many runs the share partitions of a broker may have together.

A member that finishes every second record makes a run of each: 2,000 of a partition take 400 kB of memory, and some
kB in the metadata store. Groups and partitions are many, so what one client can make of them has a bound here.
"""

from dataclasses import dataclass
from typing import Final

RUNS_MAX: Final = 500_000
"""Some 200 bytes each in memory, and 2 to 5 in the metadata store."""

IN_FLIGHT_WHEN_SPENT: Final = 100
"""Records of a partition that may be in flight while the broker has more runs than it may have."""


@dataclass(slots=True, eq=False)
class RunBudget:
    """`used`: the runs of all share partitions that are open."""

    limit: int = RUNS_MAX
    used: int = 0

    def in_flight(self, configured: int) -> int:
        """The records that may be in flight of a partition: fewer while the budget is spent.

        What is in flight already stays, and is given out again; partitions go on with fewer new records.
        """
        return configured if self.used < self.limit else min(configured, IN_FLIGHT_WHEN_SPENT)
