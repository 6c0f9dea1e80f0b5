"""The goals of the measured figures, and the section of the report that says which are met."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.measurement import Measurement
from bench.peers import KAFKA, NOOP
from bench.workloads.connections import polls_row
from bench.workloads.durable import ACK_P50, ACK_P99, SELDOM_TWICE, TRANSACTIONS
from bench.workloads.frames import FETCH_ROW, PRODUCE_ROW
from bench.workloads.standing import CLUSTER, EMBEDDED, rest_row, start_row

_NAME_WIDTH, _LIMIT_WIDTH, _COLUMN_WIDTH = 62, 10, 20
_MANY_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A limit to keep, and one to aim at, for a metric of the rows whose names match.

    `divided_by`: the peer whose median the figure is divided by; None: the median itself.
    """

    name: str
    rows: str  # a regular expression that matches the whole name
    metric: str
    divided_by: str | None = None
    at_least: float
    aim: float
    higher_is_better: bool
    tolerance: float = 0.0

    def verdict(self, value: float) -> str:
        """The comparison in one word or two."""
        for limit, word in ((self.aim, "aim"), (self.at_least, "at least")):
            if value >= limit - self.tolerance if self.higher_is_better else value <= limit + self.tolerance:
                return word
        return "MISSED"


def _ratio(name: str, rows: str, metric: str, divided_by: str, at_least: float, aim: float) -> Goal:
    return Goal(
        name=name,
        rows=rows,
        metric=metric,
        divided_by=divided_by,
        at_least=at_least,
        aim=aim,
        higher_is_better=aim > at_least,
    )


def _at_most(name: str, rows: str, metric: str, at_least: float, aim: float) -> Goal:
    return Goal(name=name, rows=rows, metric=metric, at_least=at_least, aim=aim, higher_is_better=False)


_ONE_PARTITION, _ONE_PARTITION_SELDOM = (
    rf"durable, flush interval 0 ms{manner}, 1 partition, .*" for manner in ("", SELDOM_TWICE)
)
_SERIAL_FLUSHES, _MANY_FLUSHES = r"durable, .*, 1 partition, .*", r"durable, .*, \d+ partitions, .*"
_REST, _MANY_REST, _MANY_START = (
    "|".join(re.escape(row(partitions, stores)) for stores in (EMBEDDED, CLUSTER))
    for row, partitions in ((rest_row, 0), (rest_row, _MANY_PARTITIONS), (start_row, _MANY_PARTITIONS))
)
_TAIL = rf"consume tail (1024|10240) B, .*|{re.escape(FETCH_ROW)}"
_POLLS = "|".join(re.escape(polls_row(1_000, wait_ms, _MANY_PARTITIONS)) for wait_ms in (500, 30_000))
GOALS = (
    _ratio("produce MB/s / Kafka", r"produce (1024|10240) B, .*", "MB/s", KAFKA, 1.5, 2.5),
    _ratio("consume MB/s / Kafka, tail", _TAIL, "MB/s", KAFKA, 1.0, 1.5),
    _ratio("broker CPU per GB produced / Kafka", r"produce \d+ B, .*", "broker CPU s/GB", KAFKA, 0.5, 0.25),
    _ratio("tiny requests per second / warmed Kafka", r"tiny requests, .*", "requests/s", KAFKA, 0.8, 1.3),
    _ratio("1 MiB-frame MB/s / no-op ceiling", re.escape(PRODUCE_ROW), "MB/s", NOOP, 0.6, 0.9),
    # Between them lies a sync of the disk, which Kafka does not wait for.
    _ratio("MB/s with 5 requests in flight / Kafka", r"5 in flight, .*", "MB/s", KAFKA, 0.8, 1.0),
    _at_most("durable ack p50 / PUT p50", _ONE_PARTITION, ACK_P50, 1.5, 1.15),
    _at_most("durable ack p99 / PUT p99", _ONE_PARTITION, ACK_P99, 1.2, 1.0),
    _at_most("ack p50 / PUT p50, one PUT in ten twice", _ONE_PARTITION_SELDOM, ACK_P50, 2.0, 1.6),
    _at_most("ack p99 / PUT p99, one PUT in ten twice", _ONE_PARTITION_SELDOM, ACK_P99, 1.5, 1.3),
    # The journal's progress is written at most every 100 ms; records and checkpoints follow in the background.
    replace(
        _at_most("metadata transactions per flush, 1 partition", _SERIAL_FLUSHES, TRANSACTIONS, 1.0, 1.0),
        tolerance=0.05,
    ),
    replace(
        _at_most("metadata transactions per flush, many partitions", _MANY_FLUSHES, TRANSACTIONS, 1.0, 0.5),
        tolerance=0.05,
    ),
    _at_most("memory at rest, MB", _REST, "resident MB", 100, 60),
    _at_most("memory with 10,000 partitions, MB", _MANY_REST, "resident MB", 400, 200),
    _at_most("start-up with 10,000 partitions, s", _MANY_START, "s", 3, 1),
    _at_most("idle CPU, 10,000 partitions, 1,000 long polls, % of a core", _POLLS, "% of a core", 10, 4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The figures of one row under a goal: the value of each peer that has one."""

    goal: Goal
    row: str
    values: Mapping[str, float]


def figures(measurements: Sequence[Measurement], goals: Sequence[Goal] = GOALS) -> Iterator[Figure]:
    """Every goal with each row that it applies to; a goal without measurements has none."""
    for goal in goals:
        for row, medians in _medians(measurements, goal).items():
            divisor = 1.0 if goal.divided_by is None else medians.get(goal.divided_by, 0.0)
            if divisor:
                values = {peer: median / divisor for peer, median in medians.items()}
                yield Figure(goal=goal, row=row, values=values)


def _medians(measurements: Sequence[Measurement], goal: Goal) -> dict[str, dict[str, float]]:
    """Row -> peer -> median, in the order of first appearance."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in measurements:
        if one.metric == goal.metric and re.fullmatch(goal.rows, one.workload):
            found.setdefault(one.workload, {}).setdefault(one.peer, []).append(one.value)
    return {
        row: {peer: statistics.median(values) for peer, values in by_peer.items()}
        for row, by_peer in found.items()
    }


def goals_text(measurements: Sequence[Measurement], peers: Sequence[str]) -> str:
    """A line for each figure with its verdict for each of these peers, and one for a goal without figures."""
    head = f"{'to reach':<{_NAME_WIDTH}}{'at least':<{_LIMIT_WIDTH}}{'aim':<{_LIMIT_WIDTH}}"
    lines = [head + "".join(f"{peer:<{_COLUMN_WIDTH}}" for peer in peers)]
    lines.append("-" * len(lines[0]))
    by_goal: dict[str, list[Figure]] = {goal.name: [] for goal in GOALS}
    for figure in figures(measurements):
        by_goal[figure.goal.name].append(figure)
    for goal in GOALS:
        limits = f"{goal.at_least:<{_LIMIT_WIDTH}g}{goal.aim:<{_LIMIT_WIDTH}g}"
        found = by_goal[goal.name]
        lines.append(f"{goal.name:<{_NAME_WIDTH}}{limits}{'' if found else 'not measured'}")
        lines += [_line(figure, peers) for figure in found]
    return "\n".join(line.rstrip() for line in lines)


def _line(figure: Figure, peers: Sequence[str]) -> str:
    cells = []
    for peer in peers:
        value = figure.values.get(peer)
        cells.append("-" if value is None else f"{value:.3g} {figure.goal.verdict(value)}")
    indented = f"  {figure.row:<{_NAME_WIDTH + 2 * _LIMIT_WIDTH - 2}}"
    return indented + "".join(f"{cell:<{_COLUMN_WIDTH}}" for cell in cells)
