"""Exports topics together: one commit to each table, of a cut that has no committed transaction by half.

Decision 0092. All topics are held and looked at, then the cut is found, then all rows are written, and last all
tables are committed to, one after another: those few commits are the time in which they are not of one cut.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafscale.errors import KafscaleError, TopicReplacedError
from kafscale.lake.atomic_cut import AtomicCut
from kafscale.lake.atomic_scan import HeaderScan, is_quiet, opened_scan, unmarked_of
from kafscale.lake.batch_plan import BatchPlan, left_to_export, plan_cut, replaced, state_after
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_state import CUT_PROPERTY
from kafscale.lake.ranges import Ranges, size
from kafscale.lake.topic_export import Look, TopicExport, WrittenBatch, ends_of
from kafscale.reader.topic_state import PartitionKey, TopicLog
from kafscale.settings.broker import Settings

logger = logging.getLogger(__name__)

MOST_RANGES: Final = 5_000
"""In a partition, of offsets that a cut leaves out: every snapshot of the table repeats them."""


class AtomicCutError(KafscaleError):
    """There is no cut that can be exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A topic's commit of the cut."""

    export: TopicExport
    look: Look
    batch: BatchPlan
    commit_id: str
    began: float

    @property
    def is_needed(self) -> bool:
        return not self.batch.is_empty or bool(self.look.target.starts.keys() - self.look.state.starts.keys())


class AtomicExport:
    """One round. `exports`: of all topics of the job, each under its lease."""

    def __init__(
        self,
        settings: Settings,
        exports: Sequence[TopicExport],
        events: ExportEvents,
        say: Callable[[str], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._exports = exports
        self._events = events
        self._say = say
        self._stopping = stopping

    def run(self) -> None:
        """Export what is decided everywhere. Raises `AtomicCutError`, and what a `TopicExport` raises."""
        looked_sec = time.time()
        try:
            self._run()
        except TopicReplacedError as problem:
            raise replaced(problem) from problem
        for one in self._exports:
            one.finish(None if self._stopping() else looked_sec)

    def _run(self) -> None:
        _check_tables(self._exports)
        # First the revision, then the logs: what was decided by then has all its records in them.
        earlier = [ends_of(one.held.read_topic({})) for one in self._exports]
        revision, markers = self._exports[0].held.unmarked()
        looks = [one.look() for one in self._exports]
        logs = [look.log for look in looks]
        left: list[dict[int, Ranges]] = []
        gaps: list[dict[int, Ranges]] = []
        for one, look in zip(self._exports, looks, strict=True):
            there, lost = left_to_export(look.target, look.state, look.log, one.scope.gap_policy)
            left.append(there)
            gaps.append(lost)
        left_out: Mapping[PartitionKey, Ranges] = {}
        unmarked = unmarked_of(markers, logs)
        if unmarked or not self._is_quiet(logs):
            left_out = self._scanned(AtomicCut(revision, unmarked), logs, earlier, left)
        check_left_out(left_out, logs)
        planned = []
        for number, (one, look) in enumerate(zip(self._exports, looks, strict=True)):
            own = {partition: some for (topic, partition), some in left_out.items() if topic == one.topic}
            plan = plan_cut(left[number], gaps[number], look.log, own)
            planned.append(
                _Planned(
                    export=one, look=look, batch=plan, commit_id=uuid.uuid4().hex, began=time.monotonic()
                )
            )
        if not self._stopping():
            self._commit(revision, [one for one in planned if one.is_needed])

    def _is_quiet(self, logs: Sequence[TopicLog]) -> bool:
        if any(one.end_offset != one.log_end_offset for log in logs for one in log.partitions):
            return False
        again = [one.held.read_topic({}) for one in self._exports]
        return is_quiet(logs, again)

    def _scanned(
        self,
        cut: AtomicCut,
        logs: Sequence[TopicLog],
        earlier: Sequence[Mapping[int, int]],
        left: Sequence[Mapping[int, Ranges]],
    ) -> Mapping[PartitionKey, Ranges]:
        began = time.monotonic()
        with opened_scan(self._settings) as stores:
            scan = HeaderScan(self._settings, stores)
            for one, log, ends in zip(self._exports, logs, earlier, strict=True):
                scan.add_tails(cut, one.held, log, ends)
                one.held.check()
            for one, log, there in zip(self._exports, logs, left, strict=True):
                scan.add_bodies(cut, one.held, log, there)
                one.held.check()
        found = cut.left_out()
        self._say(
            f"cut of {len(logs)} topics: {scan.bytes_read / 2**20:,.1f} MiB looked at in "
            f"{time.monotonic() - began:.1f} s, {sum(map(size, found.values())):,} offsets of transactions that are "
            "not complete wait for a later one"
        )
        return found

    def _commit(self, revision: int, planned: Sequence[_Planned]) -> None:
        summary = _summary(revision, planned)
        written: list[WrittenBatch] = []
        for one in planned:
            # Listeners count offsets: those that are left out come with a later commit.
            counts = {partition: size(wanted) for partition, wanted in one.batch.wanted.items()}
            ends = {partition: following for partition, (_, following) in one.batch.ranges.items()}
            shown = {
                partition: (ends[partition] - count, ends[partition]) for partition, count in counts.items()
            }
            self._events.batch_started(one.export.topic, shown)
            written.append(one.export.table.write(one.batch, one.commit_id, one.look.target.topic_id))
        for one in planned:
            one.export.held.check()
        for one, rows in zip(planned, written, strict=True):
            target = one.look.target
            after = state_after(one.look.state, one.batch, one.commit_id, target.topic_id, target.starts)
            one.export.table.publish(rows, one.look.state, after, summary)
            one.export.notify(one.batch, after, one.look.log, rows, one.began)


def _check_tables(exports: Sequence[TopicExport]) -> None:
    """Raise `AtomicCutError` if two topics have one table: a commit to it brings one topic's rows."""
    topics: dict[str, str] = {}
    for one in exports:
        other = topics.setdefault(one.scope.table, one.topic)
        if other != one.topic:
            raise AtomicCutError(
                f"topics {other!r} and {one.topic!r} have one table, {one.scope.table}, and with --transactions "
                "atomic each topic needs its own: name tables by a rule with {topic} in it"
            )


def _summary(revision: int, planned: Sequence[_Planned]) -> dict[str, str]:
    fields: dict[str, Any] = {
        "version": 1,
        "cut_id": uuid.uuid4().hex,
        "revision": revision,
        "tables": {one.export.topic: one.export.scope.table for one in planned},
    }
    return {CUT_PROPERTY: json.dumps(fields, separators=(",", ":"))}


def check_left_out(left_out: Mapping[PartitionKey, Ranges], logs: Sequence[TopicLog]) -> None:
    """Raise `AtomicCutError` if a cut would leave out more ranges of a partition than a table can remember."""
    worst = max(left_out, key=lambda place: len(left_out[place]), default=None)
    if worst is None or len(left_out[worst]) <= MOST_RANGES:
        return
    waiting = [
        (one.log_end_offset - one.end_offset, f"{log.topic}-{one.partition} from offset {one.end_offset} on")
        for log in logs
        for one in log.partitions
    ]
    raise AtomicCutError(
        f"a cut of all topics would leave out {len(left_out[worst]):,} ranges of {worst[0]}-{worst[1]}, and at most "
        f"{MOST_RANGES:,} are legal: transactions wait for {max(waiting)[1]}, where one is open; the export goes on "
        "when that has ended, or was ended by kafka-transactions.sh abort, and with --transactions committed at once"
    )
