"""The report of an export, while it runs and at its end."""

import json
from collections.abc import Sequence

import pytest

from kafscale.lake.events import EveryListener
from kafscale.lake.report import ExportReport, progress_line
from kafscale.lake.topic_tally import TopicTally


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A report, its clock, and the lines it wrote."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lines: list[str] = []
        self.report = ExportReport(self.lines.append, self.clock, interval_sec=5.0)

    def start(
        self, topic: str = "events", starts: Sequence[int] = (0, 50), ends: Sequence[int] = (1000, 250)
    ) -> None:
        self.report.topic_started(topic, f"local.db.{topic}", dict(enumerate(starts)), dict(enumerate(ends)))


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_commit_without_room_for_all_partitions_says_so() -> None:
    tally = TopicTally(topic="orders")
    tally.start("lake.orders", {}, {0: 10, 1: 20, 2: 5})
    tally.start_batch({0: (0, 10), 1: (0, 10)}, 0.0)
    assert "2 of 3 partitions in this commit" in progress_line(tally, 1.0)
    tally.commit_batch(20, 0, {0: 10, 1: 10, 2: 0}, {}, 1.0)
    tally.start_batch({1: (10, 20), 2: (0, 5)}, 1.0)
    assert "in this commit" not in progress_line(tally, 1.0)


def test_progress_is_said_every_few_seconds_with_what_is_left(told: Told) -> None:
    told.start()
    assert told.lines == ["events -> local.db.events: 1,200 offsets of 2 partitions to export"]
    told.report.batch_started("events", {0: (0, 400), 1: (50, 250)})
    told.clock.now += 4
    told.report.rows_read("events", 100)
    assert len(told.lines) == 1
    told.clock.now += 2
    told.report.tasks_done("events", 2, 8)
    assert told.lines[1:] == [
        "events: 100 of 1,200 offsets (8%), 100 rows, 17 rows/s, lag 1,200, about 1 min 6 s left, "
        "2 of 8 tasks done"
    ]
    told.report.rows_read("events", 300)
    told.clock.now += 6
    told.report.batch_committed("events", 590, 10, {0: 400, 1: 250}, {0: 1100, 1: 250}, 12.0)
    assert told.lines[2:] == [
        "events: 600 of 1,200 offsets (50%), 600 rows, 50 rows/s, lag 700, about 12 s left"
    ]


def test_more_rows_than_offsets_of_a_batch_are_not_believed(told: Told) -> None:
    """As when a task is run again."""
    told.start()
    told.report.batch_started("events", {0: (0, 400)})
    told.clock.now += 10
    told.report.rows_read("events", 900)
    assert "400 of 1,200 offsets (33%)" in told.lines[-1]


def test_the_summary_has_every_topic(told: Told) -> None:
    told.start()
    told.report.batch_started("events", {0: (0, 400), 1: (50, 250)})
    told.report.batch_committed("events", 590, 10, {0: 400, 1: 250}, {0: 1100, 1: 250}, 12.0)
    told.report.gap_recorded("events", 0, 400, 500)
    assert told.lines[-1] == (
        "events: partition 0, offsets 400 to 499 expired before they were exported; recorded as a gap"
    )
    told.report.topic_finished("events")
    told.start("quiet", [7], [7])
    told.report.topic_finished("quiet")
    told.report.topic_failed("gone", ValueError("there is no topic 'gone'"))
    assert told.lines[-1] == "gone: FAILED: there is no topic 'gone'"
    told.start("cut", [0], [10])
    told.clock.now += 30
    assert told.report.summary_text().splitlines() == [
        "TOPIC             TABLE  ROWS  DEAD LETTERS  OFFSETS  LAG  SECONDS  ROWS/S        STATUS",
        "cut        local.db.cut     0             0        0   10      0.0       -  NOT FINISHED",
        "events  local.db.events   590            10      600  700     12.0      50      exported",
        "gone                  -     0             0        0    0      0.0       -        FAILED",
        "quiet    local.db.quiet     0             0        0    0      0.0       -    up to date",
        "",
        "Offsets exported:",
        "  events-0: 0 to 399, lag 700",
        "  events-1: 50 to 249",
        "",
        "Gaps: expired before they were exported:",
        "  events-0: 400 to 499",
        "",
        "Failures:",
        "  gone: there is no topic 'gone'",
        "",
        "590 rows and 10 dead letters of 4 topics exported in 30.0 s; 1 topic FAILED.",
    ]
    fields = json.loads(json.dumps(told.report.summary_fields()))
    topics = {one.pop("topic"): one for one in fields.pop("topics")}
    assert fields == {"rows": 590, "dead_letters": 10, "seconds": 30.0, "failed_topics": 1}
    assert topics["events"] == {
        "table": "local.db.events",
        "finished": True,
        "rows": 590,
        "dead_letters": 10,
        "batches": 1,
        "offsets": 600,
        "lag": 700,
        "seconds": 12.0,
        "rows_per_second": 50.0,
        "partitions": [
            {"partition": 0, "first_offset": 0, "next_offset": 400, "log_end_offset": 1100, "lag": 700},
            {"partition": 1, "first_offset": 50, "next_offset": 250, "log_end_offset": 250, "lag": 0},
        ],
        "gaps": [{"partition": 0, "first_offset": 400, "last_offset": 499}],
        "error": None,
    }
    assert (topics["gone"]["error"], topics["cut"]["finished"]) == ("there is no topic 'gone'", False)
    assert told.report.failed_topics == ["gone"]


def test_nothing_to_report(told: Told) -> None:
    assert told.report.summary_text() == "0 rows and 0 dead letters of 0 topics exported in 0.0 s."


def test_a_job_that_keeps_going_adds_its_rounds_up(told: Told) -> None:
    for first, following in ((0, 400), (400, 1000)):
        told.start(starts=[first], ends=[following])
        told.report.batch_started("events", {0: (first, following)})
        told.report.batch_committed("events", following - first, 0, {0: following}, {0: following}, 1.0)
        told.report.topic_finished("events")
    assert sum("to export" in line for line in told.lines) == 1
    [topic] = told.report.summary_fields()["topics"]
    assert (topic["rows"], topic["batches"], topic["seconds"], topic["lag"]) == (1000, 2, 2.0, 0)
    assert topic["partitions"][0]["first_offset"] == 0
    told.report.topic_failed("events", "etcd is away")
    assert told.report.failed_topics == ["events"]
    told.start(starts=[1000], ends=[1000])
    assert told.report.failed_topics == []


def test_what_a_failed_batch_had_read_does_not_count(told: Told) -> None:
    told.start()
    told.report.batch_started("events", {0: (0, 400)})
    told.report.rows_read("events", 300)
    told.report.topic_failed("events", ValueError())
    [topic] = told.report.summary_fields()["topics"]
    assert (topic["rows"], topic["offsets"], topic["error"]) == (0, 0, "ValueError")


def test_every_listener_hears_everything() -> None:
    heard: list[tuple[str, str]] = []

    class Listener:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, event: str) -> object:
            return lambda *arguments: heard.append((self._name, f"{event}{arguments}"))

    every = EveryListener(Listener("one"), Listener("two"))  # type: ignore[arg-type]
    every.topic_started("t", "a.b.c", {0: 0}, {0: 1})
    every.batch_started("t", {0: (0, 1)})
    every.rows_read("t", 1)
    every.tasks_done("t", 1, 1)
    every.batch_committed("t", 1, 0, {0: 1}, {0: 1}, 0.5)
    every.gap_recorded("t", 0, 1, 2)
    every.topic_finished("t")
    every.topic_failed("t", "x")
    events = [
        "topic_started('t', 'a.b.c', {0: 0}, {0: 1})",
        "batch_started('t', {0: (0, 1)})",
        "rows_read('t', 1)",
        "tasks_done('t', 1, 1)",
        "batch_committed('t', 1, 0, {0: 1}, {0: 1}, 0.5)",
        "gap_recorded('t', 0, 1, 2)",
        "topic_finished('t',)",
        "topic_failed('t', 'x')",
    ]
    assert heard == [(name, event) for event in events for name in ("one", "two")]
