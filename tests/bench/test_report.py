"""The report sets medians side by side, divides by Kafka's, and says whether a target is met."""

import json
from pathlib import Path

from bench.measurement import Measurement
from bench.report import text_report, write_json


def _samples(peer: str, metric: str, *values: float, workload: str = "produce 1024 B") -> list[Measurement]:
    return [
        Measurement(peer=peer, workload=workload, metric=metric, value=value, repeat=repeat)
        for repeat, value in enumerate(values, start=1)
    ]


def _row(report: str, metric: str) -> str:
    (line,) = (line for line in report.splitlines() if line.strip().startswith(metric))
    return line


def test_a_row_shows_medians_spread_and_the_ratio_to_kafka() -> None:
    measured = _samples("kafka", "MB/s", 200, 100, 300) + _samples("kafscale", "MB/s", 500, 300, 100)
    row = _row(text_report(measured, ["kafscale", "kafka"], []), "MB/s")
    assert "300 (100-500) 1.50x" in row
    assert "200 (100-300)" in row


def test_a_ratio_target_is_judged_by_the_medians() -> None:
    row = "read 1024 B"
    measured = _samples("kafka", "rows/s", 4.0, workload=row) + _samples(
        "kafscale", "rows/s", 5, workload=row
    )
    assert _row(text_report(measured, ["kafscale", "kafka"], []), "rows/s").endswith(">= 1x met")
    measured = _samples("kafka", "rows/s", 4.0, workload=row) + _samples(
        "kafscale", "rows/s", 3, workload=row
    )
    assert _row(text_report(measured, ["kafscale", "kafka"], []), "rows/s").endswith(">= 1x MISSED")


def test_a_plain_target_needs_no_kafka() -> None:
    measured = _samples("kafscale", "GETs", 0.0, workload="warm, at the tail")
    assert _row(text_report(measured, ["kafscale"], []), "GETs").endswith("<= 0 met")


def test_a_ratio_target_without_kafka_is_stated_and_not_judged() -> None:
    measured = _samples("kafscale", "rows/s", 500, workload="read 1024 B")
    assert _row(text_report(measured, ["kafscale"], []), "rows/s").endswith(">= 1x")


def test_a_peer_without_the_workload_has_a_dash() -> None:
    measured = _samples("kafka", "MB/s", 100)
    assert _row(text_report(measured, ["kafka", "noop"], []), "MB/s").endswith(" -")


def test_the_json_file_holds_every_single_value(tmp_path: Path) -> None:
    measured = _samples("kafka", "MB/s", 100, 300)
    path = tmp_path / "results" / "run.json"
    write_json(path, measured, {"repeats": 2})
    content = json.loads(path.read_text())
    assert content["about"] == {"repeats": 2}
    assert [(row["repeat"], row["value"]) for row in content["measurements"]] == [(1, 100), (2, 300)]
