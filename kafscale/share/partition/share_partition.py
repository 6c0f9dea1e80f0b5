"""A share partition: one partition of a topic, as one share group reads it.

Theory of operation. Below the start offset every record is finished: acknowledged or archived. From the end offset on
no record was acquired. Between them are the records in flight, a few thousand at most, as runs.

The machine has no clock and no store. Each change that must outlive the leader raises `version`; a driver writes
`durable_state()` and answers what waited for that version or an older one. Memory may be ahead of the store: a
leader that was replaced throws its memory away, and with it only what no member was answered.

An acquisition changes nothing durable. What is written for a record that is acquired is Available, with its
deliveries: after a fail-over it is delivered again. A record that was given back is given to a member again once its
delivery is durable, which is said by `stored`. So its count never shrinks: the next leader knows of all deliveries
but the last one.
"""

from dataclasses import dataclass, field

from kafscale.ops.share_metrics import ShareCounts
from kafscale.share.partition.runs import FINAL_STATES, RecordState, Run, Runs, add


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """As configured for the group (`share.*`) or the broker (`group.share.*`)."""

    lock_duration_ms: int = 30_000
    max_deliveries: int = 5
    max_in_flight: int = 2_000


@dataclass(frozen=True, slots=True)
class DurableState:
    """All that the next leader must know. The runs begin at the start offset and leave no gap; none is Acquired."""

    start_offset: int
    runs: tuple[Run, ...] = ()


@dataclass(slots=True)
class SharePartition:
    """`version`: of what must be durable. `counts`: of the group, which other partitions may add to.

    `durable_version`: of what is. `given_back_version`: when records were given back last.
    """

    limits: ShareLimits
    runs: Runs
    version: int = 0
    durable_version: int = 0
    given_back_version: int = 0
    counts: ShareCounts = field(default_factory=ShareCounts)

    @classmethod
    def of(
        cls, state: DurableState, limits: ShareLimits, counts: ShareCounts | None = None
    ) -> "SharePartition":
        """Go on where the leader before has stopped.

        What it had acquired may have reached the delivery limit. How that delivery ended is not known, so there is
        one more of the same number.
        """
        runs = Runs(state.start_offset)
        for run in state.runs:
            last_chance = limits.max_deliveries - 1
            if run.state is RecordState.AVAILABLE and run.delivery_count > last_chance:
                runs.append(run._replace(delivery_count=last_chance))
            else:
                runs.append(run)
        partition = cls(limits, runs, counts=counts or ShareCounts())
        advance(partition)
        return partition

    @property
    def start_offset(self) -> int:
        """The first record that is not finished."""
        return self.runs.start_offset

    @property
    def end_offset(self) -> int:
        """The first record that was never acquired."""
        return self.runs.end_offset

    @property
    def in_flight(self) -> int:
        """Records between start and end."""
        return self.end_offset - self.start_offset

    def next_fetch_offset(self) -> int:
        """Where to read what can be acquired next."""
        return next((run.first for run in self.runs if self.may_give(run)), self.end_offset)

    def may_give(self, run: Run) -> bool:
        """True if a member may have these records now."""
        return run.state is RecordState.AVAILABLE and run.available_from <= self.durable_version

    def can_acquire(self) -> bool:
        """False if the members must finish some records first."""
        return self.in_flight < self.limits.max_in_flight or self.next_fetch_offset() < self.end_offset

    def durable_state(self) -> DurableState:
        """The state to store for the present version."""
        stored: list[Run] = []
        for run in self.runs:
            if run.state is RecordState.ACQUIRED or run.available_from:
                run = Run(run.first, run.last, RecordState.AVAILABLE, run.delivery_count)
            add(stored, run)
        return DurableState(self.start_offset, tuple(stored))

    def stored(self, version: int) -> bool:
        """The state of that version is durable. True if there are more records now that members may have."""
        may_free = self.given_back_version > self.durable_version
        self.durable_version = version
        if not may_free:
            return False
        freed = [
            Run(run.first, run.last, run.state, run.delivery_count)
            for run in self.runs
            if 0 < run.available_from <= version
        ]
        self.runs.replace(freed)
        return bool(freed)

    def next_deadline_ms(self) -> int | None:
        """When the first lock ends."""
        locked = (run.locked_until_ms for run in self.runs if run.state is RecordState.ACQUIRED)
        return min(locked, default=None)

    def log_starts_at(self, offset: int) -> None:
        """Records below were deleted from the log: they are finished, also for members that have them."""
        if offset > self.start_offset:
            self.runs.drop_before(offset)
            self.version += 1
            advance(self)


def advance(partition: SharePartition) -> None:
    """Move the start offset behind what is finished."""
    offset = partition.end_offset
    for run in partition.runs:
        if run.state not in FINAL_STATES:
            offset = run.first
            break
    if offset > partition.start_offset:
        partition.runs.drop_before(offset)


def available_again(run: Run, partition: SharePartition) -> Run:
    """The run, given back after a delivery that counts: to be delivered again, or archived.

    The caller raises the version by one.
    """
    if run.delivery_count >= partition.limits.max_deliveries:
        partition.counts.archived += run.records
        return Run(run.first, run.last, RecordState.ARCHIVED, run.delivery_count)
    partition.given_back_version = partition.version + 1
    return Run(
        run.first,
        run.last,
        RecordState.AVAILABLE,
        run.delivery_count,
        available_from=partition.given_back_version,
    )
