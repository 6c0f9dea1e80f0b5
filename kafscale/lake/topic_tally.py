"""Counts of the export of one topic so far: rows, positions, lag, pace. Pure."""

from dataclasses import dataclass, field

from kafscale.lake.events import BatchRanges, Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets that expired before they were exported: the first, and the one after the last."""

    partition: int
    first: int
    next_offset: int


@dataclass(slots=True, kw_only=True)
class TopicTally:
    """Adds up. `starts`: the first offset of each partition in the first round; `ends`: those of the last round.

    `batch_*` are of the running batch, and 0 without one.
    """

    topic: str
    table: str = ""
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    log_ends: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    dead_letters: int = 0
    batches: int = 0
    seconds: float = 0.0
    offsets_done: int = 0
    offsets_wanted: int = 0
    gaps: list[Gap] = field(default_factory=list)
    error: str = ""
    is_finished: bool = False
    batch_started_at: float | None = None
    batch_ranges: BatchRanges = field(default_factory=dict)
    batch_rows: int = 0
    batch_tasks: tuple[int, int] = (0, 0)

    def start(self, table: str, start: Offsets, end: Offsets) -> None:
        """A round begins: it exports the offsets from `start` to before `end`, in addition to earlier rounds."""
        self.table = table
        self.error = ""
        self.is_finished = False
        for partition, offset in start.items():
            self.starts.setdefault(partition, offset)
            self.positions.setdefault(partition, offset)
        self.ends.update(end)
        self.offsets_wanted = self.offsets_done + sum(
            max(0, end[partition] - start.get(partition, 0)) for partition in end
        )

    def start_batch(self, ranges: BatchRanges, now: float) -> None:
        """A batch begins."""
        self.batch_started_at = now
        self.batch_ranges = ranges
        self.batch_rows = 0
        self.batch_tasks = (0, 0)

    def commit_batch(
        self, rows: int, dead_letters: int, positions: Offsets, log_end: Offsets, seconds: float
    ) -> None:
        """The running batch is done."""
        self.rows += rows
        self.dead_letters += dead_letters
        self.batches += 1
        self.seconds += seconds
        self.offsets_done += self._batch_offsets()
        self.positions.update(positions)
        self.log_ends.update(log_end)
        self._end_batch()

    def add_gap(self, gap: Gap) -> None:
        """Offsets are lost, and not to be exported any more."""
        self.gaps.append(gap)
        self.offsets_done += gap.next_offset - gap.first

    def fail(self, error: str) -> None:
        """The topic has failed; the rows of the running batch do not count."""
        self.error = error
        self._end_batch()

    def _end_batch(self) -> None:
        self.batch_started_at = None
        self.batch_ranges = {}
        self.batch_rows = 0
        self.batch_tasks = (0, 0)

    def _batch_offsets(self) -> int:
        return sum(following - first for first, following in self.batch_ranges.values())

    @property
    def partitions_left(self) -> int:
        """The partitions with wanted offsets that are not exported yet, those of the running batch included."""
        return sum(end > self.positions.get(partition, 0) for partition, end in self.ends.items())

    @property
    def offsets_exported(self) -> int:
        """The exported offsets without gaps; some of them have no record."""
        return self.offsets_done - sum(gap.next_offset - gap.first for gap in self.gaps)

    @property
    def offsets_passed(self) -> int:
        """The exported offsets, and those that the running batch has passed, estimated by its rows."""
        return self.offsets_done + min(self.batch_rows, self._batch_offsets())

    @property
    def offsets_left(self) -> int:
        """The number of wanted offsets that are not exported yet."""
        return max(0, self.offsets_wanted - self.offsets_passed)

    def lag_of(self, partition: int) -> int:
        """The offsets between the exported ones and the log end, as far as it is known."""
        end = self.log_ends.get(partition, self.ends.get(partition, 0))
        return max(0, end - self.positions.get(partition, 0))

    @property
    def lag(self) -> int:
        """Of all partitions, without the running batch."""
        return sum(map(self.lag_of, {*self.log_ends, *self.ends}))

    def rows_per_second(self) -> float | None:
        """Of the commits, dead letters included; None before the first."""
        return (self.rows + self.dead_letters) / self.seconds if self.seconds > 0 and self.batches else None

    def pace(self, now: float) -> tuple[float, float] | None:
        """Rows and offsets per second, the running batch included; None before there are any."""
        running = now - self.batch_started_at if self.batch_started_at is not None else 0.0
        busy_sec = self.seconds + running
        if busy_sec <= 0 or not self.offsets_passed:
            return None
        rows = self.rows + self.dead_letters + self.batch_rows
        return rows / busy_sec, self.offsets_passed / busy_sec
