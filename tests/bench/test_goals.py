"""Figures held against what is to be reached: which rows, divided by what, and what is said of them."""

import pytest

from bench.goals import GOALS, Goal, figures, goals_text
from bench.measurement import Measurement
from bench.plan import Plan
from bench.workloads.connections import polls_row
from bench.workloads.standing import rest_row, start_row
from bench.workloads.throughput import row_name


def _samples(peer: str, row: str, metric: str, *values: float) -> list[Measurement]:
    return [
        Measurement(peer=peer, workload=row, metric=metric, value=value, repeat=repeat)
        for repeat, value in enumerate(values, start=1)
    ]


def _goal(name: str) -> Goal:
    (found,) = (goal for goal in GOALS if goal.name.startswith(name))
    return found


def test_goal_figure_is_median_divided_by_peers_median() -> None:
    row = row_name("produce", 1024, 6)
    measured = [
        *_samples("kafka", row, "MB/s", 100, 300, 200),
        *_samples("kafscale", row, "MB/s", 500, 100, 900),
        *_samples("kafscale-producer", row, "MB/s", 320),
    ]
    (figure,) = figures(measured)
    assert (figure.goal.name, figure.row) == ("produce MB/s / Kafka", row)
    assert figure.values == {"kafka": 1.0, "kafscale": 2.5, "kafscale-producer": 1.6}
    text = goals_text(measured, ["kafscale", "kafscale-producer"])
    (line,) = (line for line in text.splitlines() if row in line)
    assert line.split()[-5:] == ["2.5", "aim", "1.6", "at", "least"]


def test_what_is_missed_is_called_missed_in_both_directions() -> None:
    higher, lower = _goal("tiny requests"), _goal("broker CPU per GB")
    assert [higher.verdict(value) for value in (0.79, 0.8, 1.29, 1.3)] == [
        "MISSED",
        "at least",
        "at least",
        "aim",
    ]
    assert [lower.verdict(value) for value in (0.51, 0.5, 0.26, 0.25)] == [
        "MISSED",
        "at least",
        "at least",
        "aim",
    ]


def test_goal_without_figures_or_divisor_reports_none() -> None:
    measured = _samples("kafscale", row_name("produce", 1024, 6), "MB/s", 500)
    assert list(figures(measured)) == []
    assert goals_text(measured, ["kafscale"]).count("not measured") == len(GOALS)


@pytest.mark.parametrize(
    ("row", "metric", "goal"),
    [
        (rest_row(0), "resident MB", "memory at rest"),
        (rest_row(10_000), "resident MB", "memory with 10,000"),
        (start_row(10_000), "s", "start-up with 10,000"),
        (polls_row(1_000, 500, 10_000), "% of a core", "idle CPU"),
        ("durable, flush interval 0 ms, 1 partition, 20/s", "ack p50 / PUT p50", "durable ack p50"),
        (
            "durable, flush interval 0 ms, one PUT in ten twice, 1 partition, 20/s",
            "ack p50 / PUT p50",
            "ack p50 / PUT p50, one PUT in ten twice",
        ),
        (
            "durable, flush interval 500 ms, 50 partitions, 1000/s",
            "metadata transactions/flush",
            "metadata transactions per flush, many",
        ),
        (
            "durable, flush interval 0 ms, 1 partition, 20/s",
            "metadata transactions/flush",
            "metadata transactions per flush, 1",
        ),
    ],
)
def test_a_plain_figure_needs_no_other_peer(row: str, metric: str, goal: str) -> None:
    (figure,) = figures(_samples("kafscale", row, metric, 1.0))
    assert figure.goal is _goal(goal)


@pytest.mark.parametrize(
    ("row", "metric"),
    [
        (row_name("produce", 100, 6), "MB/s"),
        (row_name("consume cold", 1024, 6), "MB/s"),
        (rest_row(1_000), "resident MB"),
        ("durable, flush interval 500 ms, 1 partition, 20/s", "ack p50 / PUT p50"),
    ],
)
def test_rows_that_no_goal_is_for_have_no_figure(row: str, metric: str) -> None:
    assert list(figures(_samples("kafscale", row, metric, 1.0) + _samples("kafka", row, metric, 1.0))) == []


def test_transaction_goal_needs_flushes_of_many_partitions() -> None:
    one, many = _goal("metadata transactions per flush, 1"), _goal("metadata transactions per flush, many")
    verdicts = [[goal.verdict(value) for value in (0.5, 1.0, 1.05, 1.1)] for goal in (one, many)]
    assert verdicts == [["aim", "aim", "aim", "MISSED"], ["aim", "at least", "at least", "MISSED"]]


def test_a_whole_run_measures_what_every_goal_is_for() -> None:
    plan = Plan(payload="random")
    assert {1024, 10240} <= set(plan.record_sizes)
    assert {0, 10_000} <= set(plan.standing_partitions)
    assert (plan.connections, plan.connection_partitions) == (1_000, 10_000)
    assert 0 in plan.durable_intervals_ms
    assert plan.durable_many_partitions > 1
