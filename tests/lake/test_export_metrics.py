"""The exporter's metrics: what is counted, where it goes, and that a file's counters go on from run to run."""

import logging
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafscale.errors import SettingError, StartupError
from kafscale.lake.export_metrics import ExportMetrics
from kafscale.lake.metric_families import FAMILIES
from kafscale.lake.metrics_output import read_metrics_file, served_metrics, write_metrics_file
from kafscale.ops.metric_families import MetricType
from kafscale.settings.kinds import Address
from tests.support.waiting import PATIENCE_SEC

NOW = 1_700_000_000.0


def new_metrics(most_lag_series: int = 1000) -> ExportMetrics:
    return ExportMetrics(lambda: NOW, most_lag_series)


def export_a_little(metrics: ExportMetrics, topic: str = "events") -> None:
    metrics.topic_started(topic, f"local.db.{topic}", {0: 0, 1: 50}, {0: 1000, 1: 250})
    metrics.batch_started(topic, {0: (0, 400)})
    metrics.rows_read(topic, 300)
    metrics.tasks_done(topic, 1, 2)
    metrics.batch_committed(topic, 390, 10, {0: 400}, {0: 1100, 1: 250}, 7.5)
    metrics.gap_recorded(topic, 1, 50, 60)


def text_of(metrics: ExportMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def samples_of(text: str) -> dict[tuple[str, ...], float]:
    return {
        (
            sample.name.removeprefix("kafscale_export_"),
            *(value for _, value in sorted(sample.labels.items())),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_export_is_counted() -> None:
    metrics = new_metrics()
    export_a_little(metrics)
    found = samples_of(text_of(metrics))
    assert found["rows_total", "events"] == 390
    assert found["dead_letters_total", "events"] == 10
    assert found["gaps_total", "events"] == 1
    assert found["gap_offsets_total", "events"] == 10
    assert found["failures_total", "events"] == 0
    assert found["last_commit_timestamp_seconds", "events"] == NOW
    assert ("last_success_timestamp_seconds", "events") not in found
    assert found["topic_lag", "events"] == 900
    assert (found["lag", "0", "events"], found["lag", "1", "events"]) == (700, 200)
    assert found["lag_series_omitted",] == 0
    assert found["commit_duration_seconds_count", "events"] == 1
    assert found["commit_duration_seconds_sum", "events"] == 7.5
    assert found["commit_duration_seconds_bucket", "5", "events"] == 0
    assert found["commit_duration_seconds_bucket", "10", "events"] == 1
    assert found["commit_duration_seconds_bucket", "+Inf", "events"] == 1

    metrics.topic_finished("events")
    metrics.topic_failed("gone", "no such topic")
    found = samples_of(text_of(metrics))
    assert found["last_success_timestamp_seconds", "events"] == NOW
    assert found["failures_total", "gone"] == 1


def test_rows_of_the_running_batch_are_shown_while_it_runs() -> None:
    metrics = new_metrics()
    events: list[tuple[Callable[[], None], int]] = [
        (lambda: metrics.batch_started("events", {0: (0, 400)}), 0),
        (lambda: metrics.rows_read("events", 300), 300),
        (lambda: metrics.batch_committed("events", 400, 0, {}, {}, 1.0), 0),
        (lambda: metrics.rows_read("events", 100), 100),
        (lambda: metrics.topic_failed("events", "x"), 0),
    ]
    for event, rows in events:
        event()
        assert samples_of(text_of(metrics))["batch_rows", "events"] == rows


def test_the_export_is_the_table() -> None:
    metrics = new_metrics()
    export_a_little(metrics)
    metrics.topic_complete("events", NOW - 3)
    metrics.topic_finished("events")
    parsed = {family.name: family for family in text_string_to_metric_families(text_of(metrics))}
    for row in FAMILIES:
        family = parsed.pop(row.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (row.type.value, row.documentation)
        assert family.samples, f"{row.name} has no sample"
        extra = {"le"} if row.type is MetricType.HISTOGRAM else set()
        assert {label for sample in family.samples for label in sample.labels} == set(row.labels) | extra
    assert not parsed


def test_the_lag_of_too_many_partitions_is_shown_in_sum() -> None:
    metrics = new_metrics(most_lag_series=3)
    ends = dict.fromkeys(range(5), 10)
    metrics.topic_started("events", "local.db.events", dict.fromkeys(range(5), 0), ends)
    found = samples_of(text_of(metrics))
    assert [key[1] for key in found if key[0] == "lag"] == ["0", "1", "2"]
    assert found["lag_series_omitted",] == 2
    assert found["topic_lag", "events"] == 50


def test_counters_in_a_file_go_on_from_run_to_run(tmp_path: Path) -> None:
    path = tmp_path / "events.prom"
    for run in (1, 2, 3):
        metrics = new_metrics()
        read_metrics_file(metrics, path)
        if run < 3:
            export_a_little(metrics)
        write_metrics_file(metrics, path)
        found = samples_of(path.read_text())
        runs = min(run, 2)
        assert found["rows_total", "events"] == 390 * runs
        assert found["commit_duration_seconds_count", "events"] == runs
        assert found["commit_duration_seconds_bucket", "10", "events"] == runs
        # A lag is of its time.
        assert (("topic_lag", "events") in found) == (run < 3)
    assert [one.name for one in tmp_path.iterdir()] == ["events.prom"]
    assert "process_" not in path.read_text()


def test_a_file_that_is_not_understood_is_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.prom"
    path.write_text("kafscale_export_rows_total{topic= 1\n")
    metrics = new_metrics()
    with caplog.at_level(logging.WARNING):
        read_metrics_file(metrics, path)
    assert "counters begin at 0" in caplog.text
    export_a_little(metrics)
    write_metrics_file(metrics, path)
    assert samples_of(path.read_text())["rows_total", "events"] == 390


@pytest.mark.parametrize("name", ["events.txt", "nowhere/events.prom"])
def test_a_path_that_no_collector_would_read_is_not_legal(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="--metrics-file"):
        read_metrics_file(new_metrics(), tmp_path / name)


def test_metrics_are_served_while_the_job_runs() -> None:
    metrics = new_metrics()
    with served_metrics(metrics, Address("127.0.0.1", 0)) as port:
        export_a_little(metrics)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SEC) as answer:
            found = samples_of(answer.read().decode())
        assert found["rows_total", "events"] == 390
        assert ("process_start_time_seconds",) in found
        with (
            pytest.raises(StartupError, match=f"127.0.0.1:{port} for metrics"),
            served_metrics(metrics, Address("127.0.0.1", port)),
        ):
            raise AssertionError("the port was taken twice")


def test_lag_in_seconds_counts_from_what_is_complete() -> None:
    now = NOW
    metrics = ExportMetrics(lambda: now)
    metrics.topic_started("events", "local.db.events", {0: 0}, {0: 10})
    now += 50
    assert samples_of(text_of(metrics))["topic_lag_seconds", "events"] == 50, "since the first look"
    metrics.topic_complete("events", NOW + 45)
    assert samples_of(text_of(metrics))["topic_lag_seconds", "events"] == 5
    now += 100
    metrics.topic_started("events", "local.db.events", {0: 10}, {0: 20})
    found = samples_of(text_of(metrics))
    assert found["topic_lag_seconds", "events"] == 105, "not by a look alone"
    assert found["complete_timestamp_seconds", "events"] == NOW + 45


def test_a_topic_that_left_has_no_lag() -> None:
    metrics = new_metrics()
    export_a_little(metrics)
    export_a_little(metrics, "others")
    metrics.topic_complete("events", NOW)
    metrics.topic_left("events")
    found = samples_of(text_of(metrics))
    gauges = ("topic_lag", "topic_lag_seconds", "complete_timestamp_seconds", "last_commit_timestamp_seconds")
    assert not [key for key in found if key[-1] == "events" and key[0] in (*gauges, "lag")]
    assert found["rows_total", "events"] == 390
    assert found["topic_lag", "others"] == 900


def test_a_position_that_another_exporter_moved_counts() -> None:
    metrics = new_metrics()
    metrics.topic_started("events", "local.db.events", {0: 0}, {0: 10})
    metrics.topic_started("events", "local.db.events", {0: 8}, {0: 10})
    assert samples_of(text_of(metrics))["topic_lag", "events"] == 2


def test_the_moment_of_an_earlier_run_counts_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.prom"
    metrics = new_metrics()
    export_a_little(metrics)
    metrics.topic_complete("events", NOW - 500)
    write_metrics_file(metrics, path)
    later = new_metrics()
    read_metrics_file(later, path)
    export_a_little(later)
    assert samples_of(text_of(later))["topic_lag_seconds", "events"] == 500
