"""The report of an export: lines while it runs, a summary at its end for people and for programs. Pure.

Every method may be called from any thread.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kafscale.lake.events import BatchRanges, Offsets
from kafscale.lake.topic_tally import Gap, TopicTally
from kafscale.ops.report_text import PacedLines, section, table

PROGRESS_SEC: Final = 5.0

_COLUMNS: Final = ("TOPIC", "TABLE", "ROWS", "DEAD LETTERS", "OFFSETS", "LAG", "SECONDS", "ROWS/S", "STATUS")


class ExportReport:
    """Listens to an export (see `ExportEvents`) and reports it.

    `write` takes one line: about progress at most one every `interval_sec`, and at once events that an operator
    should know. `clock`: monotonic seconds.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float], interval_sec: float = PROGRESS_SEC
    ) -> None:
        self._write = write
        self._clock = clock
        self._started_at = clock()
        self._lines = PacedLines(write, clock, interval_sec)
        self._topics: dict[str, TopicTally] = {}
        self._lock = threading.Lock()

    def topic_started(self, topic: str, table: str, start: Offsets, end: Offsets) -> None:
        """See `ExportEvents`; reported at once in the topic's first round."""
        with self._lock:
            is_new = topic not in self._topics
            tally = self._tally(topic)
            tally.start(table, start, end)
            if is_new:
                offsets = sum(max(0, end[partition] - start.get(partition, 0)) for partition in end)
                where = f"{len(end)} partition{'s' * (len(end) != 1)}"
                self._write(f"{topic} -> {table}: {offsets:,} offsets of {where} to export")

    def batch_started(self, topic: str, ranges: BatchRanges) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._tally(topic).start_batch(ranges, self._clock())
            self._say_progress(topic)

    def rows_read(self, topic: str, rows: int) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._tally(topic).batch_rows = rows
            self._say_progress(topic)

    def tasks_done(self, topic: str, done: int, tasks: int) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._tally(topic).batch_tasks = (done, tasks)
            self._say_progress(topic)

    def batch_committed(
        self, topic: str, rows: int, dead_letters: int, positions: Offsets, log_end: Offsets, seconds: float
    ) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._tally(topic).commit_batch(rows, dead_letters, positions, log_end, seconds)
            self._say_progress(topic)

    def gap_recorded(self, topic: str, partition: int, first: int, next_offset: int) -> None:
        """See `ExportEvents`; reported at once."""
        with self._lock:
            gap = Gap(partition=partition, first=first, next_offset=next_offset)
            self._tally(topic).add_gap(gap)
            self._write(f"{topic}: {_gap_text(gap)}")

    def topic_finished(self, topic: str) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._tally(topic).is_finished = True

    def topic_complete(self, topic: str, as_of_sec: float) -> None:
        """See `ExportEvents`: the lag in offsets says as much at a run's end."""

    def topic_left(self, topic: str) -> None:
        """See `ExportEvents`; reported at once, and a failure of it does not count any more."""
        with self._lock:
            self._tally(topic).error = ""
            self._write(f"{topic}: is not exported any more")

    def topic_failed(self, topic: str, error: BaseException | str) -> None:
        """See `ExportEvents`; reported at once."""
        with self._lock:
            said = str(error) or type(error).__name__
            self._tally(topic).fail(said)
            self._write(f"{topic}: FAILED: {said}")

    def say(self, line: str) -> None:
        """Write a line at once."""
        with self._lock:
            self._write(line)

    @property
    def failed_topics(self) -> list[str]:
        """The failed topics, by name."""
        with self._lock:
            return sorted(topic for topic, tally in self._topics.items() if tally.error)

    @property
    def failures(self) -> dict[str, str]:
        """The error of each failed topic, by name."""
        with self._lock:
            return {one.topic: one.error for one in self._sorted() if one.error}

    def summary_text(self) -> str:
        """The summary for people."""
        with self._lock:
            tallies = self._sorted()
            lines = list(table([_COLUMNS, *map(_row, tallies)])) if tallies else []
            lines += section("Offsets exported", _offset_lines(tallies))
            lines += section("Gaps: expired before they were exported", _gap_lines(tallies))
            lines += section("Failures", (f"{one.topic}: {one.error}" for one in tallies if one.error))
            return "\n".join([*lines, *([""] if lines else []), self._verdict(tallies)])

    def summary_fields(self) -> dict[str, Any]:
        """The summary for programs; docs/lake-export.md lists the fields."""
        with self._lock:
            tallies = self._sorted()
            return {
                "rows": sum(one.rows for one in tallies),
                "dead_letters": sum(one.dead_letters for one in tallies),
                "seconds": round(self._clock() - self._started_at, 3),
                "failed_topics": sum(bool(one.error) for one in tallies),
                "topics": [_topic_fields(one) for one in tallies],
            }

    def _tally(self, topic: str) -> TopicTally:
        return self._topics.setdefault(topic, TopicTally(topic=topic))

    def _sorted(self) -> list[TopicTally]:
        return [self._topics[topic] for topic in sorted(self._topics)]

    def _say_progress(self, topic: str) -> None:
        self._lines.say(progress_line(self._topics[topic], self._clock()))

    def _verdict(self, tallies: list[TopicTally]) -> str:
        rows, dead_letters = sum(one.rows for one in tallies), sum(one.dead_letters for one in tallies)
        failed = sum(bool(one.error) for one in tallies)
        told = (
            f"{rows:,} rows and {dead_letters:,} dead letters of {_count(len(tallies), 'topic')} exported in "
            f"{self._clock() - self._started_at:.1f} s"
        )
        return f"{told}; {_count(failed, 'topic')} FAILED." if failed else f"{told}."


def progress_line(tally: TopicTally, now: float) -> str:
    """The progress of a topic in one line."""
    share = tally.offsets_passed / tally.offsets_wanted if tally.offsets_wanted else 1.0
    parts = [
        f"{tally.topic}: {tally.offsets_passed:,} of {tally.offsets_wanted:,} offsets ({int(share * 100)}%)",
        f"{tally.rows + tally.dead_letters + tally.batch_rows:,} rows",
    ]
    pace = tally.pace(now)
    if pace is not None:
        parts.append(f"{pace[0]:,.0f} rows/s")
    parts.append(f"lag {tally.lag:,}")
    if pace is not None and tally.offsets_left:
        parts.append(f"about {_duration(tally.offsets_left / pace[1])} left")
    if 0 < len(tally.batch_ranges) < tally.partitions_left:
        parts.append(f"{len(tally.batch_ranges)} of {tally.partitions_left} partitions in this commit")
    done, tasks = tally.batch_tasks
    if tasks:
        parts.append(f"{done} of {_count(tasks, 'task')} done")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _row(tally: TopicTally) -> tuple[str, ...]:
    pace = tally.rows_per_second()
    return (
        tally.topic,
        tally.table or "-",
        f"{tally.rows:,}",
        f"{tally.dead_letters:,}",
        f"{tally.offsets_exported:,}",
        f"{tally.lag:,}",
        f"{tally.seconds:.1f}",
        "-" if pace is None else f"{pace:,.0f}",
        _status(tally),
    )


def _status(tally: TopicTally) -> str:
    if tally.error:
        return "FAILED"
    if not tally.is_finished:
        return "NOT FINISHED"
    return "exported" if tally.batches else "up to date"


def _moved(tally: TopicTally) -> Iterator[tuple[int, int, int]]:
    for partition, position in sorted(tally.positions.items()):
        start = tally.starts.get(partition, 0)
        if position > start:
            yield partition, start, position


def _offset_lines(tallies: Iterable[TopicTally]) -> Iterator[str]:
    for tally in tallies:
        for partition, start, position in _moved(tally):
            lag = tally.lag_of(partition)
            yield f"{tally.topic}-{partition}: {start} to {position - 1}" + (f", lag {lag:,}" if lag else "")


def _gap_text(gap: Gap) -> str:
    return (
        f"partition {gap.partition}, offsets {gap.first} to {gap.next_offset - 1} expired before they were "
        "exported; recorded as a gap"
    )


def _gap_lines(tallies: Iterable[TopicTally]) -> Iterator[str]:
    for tally in tallies:
        for gap in tally.gaps:
            yield f"{tally.topic}-{gap.partition}: {gap.first} to {gap.next_offset - 1}"


def _topic_fields(tally: TopicTally) -> dict[str, Any]:
    pace = tally.rows_per_second()
    partitions = sorted({*tally.positions, *tally.ends, *tally.log_ends})
    return {
        "topic": tally.topic,
        "table": tally.table or None,
        "finished": tally.is_finished,
        "rows": tally.rows,
        "dead_letters": tally.dead_letters,
        "batches": tally.batches,
        "offsets": tally.offsets_exported,
        "lag": tally.lag,
        "seconds": round(tally.seconds, 3),
        "rows_per_second": None if pace is None else round(pace, 1),
        "partitions": [
            {
                "partition": partition,
                "first_offset": tally.starts.get(partition, 0),
                "next_offset": tally.positions.get(partition, tally.starts.get(partition, 0)),
                "log_end_offset": tally.log_ends.get(partition, tally.ends.get(partition)),
                "lag": tally.lag_of(partition),
            }
            for partition in partitions
        ],
        "gaps": [
            {"partition": gap.partition, "first_offset": gap.first, "last_offset": gap.next_offset - 1}
            for gap in tally.gaps
        ],
        "error": tally.error or None,
    }
