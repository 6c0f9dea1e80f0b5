"""The table: medians side by side with their ratio to Kafka and targets, as text and as JSON."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measurement import Measurement
from bench.peers import KAFKA


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a row: a ratio to Kafka or a plain value, at least or at most."""

    workload_prefix: str
    metric: str
    limit: float
    at_least: bool
    is_ratio: bool

    def fits(self, workload: str, metric: str) -> bool:
        return metric == self.metric and workload.startswith(self.workload_prefix)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}{'x' if self.is_ratio else ''}"


def _read_targets() -> Iterable[Target]:
    """The targets of `bench.reads`."""
    plain = (
        ("cold, 1 consumer", "times as fast as one at a time", 20.0, True),
        ("cold, ", "GETs per slice", 1.0, False),
        ("warm, ", "GETs", 0.0, False),
    )
    for prefix, metric, limit, at_least in plain:
        yield Target(workload_prefix=prefix, metric=metric, limit=limit, at_least=at_least, is_ratio=False)


def _lake_targets() -> Iterable[Target]:
    """The targets of `bench.lake`."""
    for metric in ("rows per CPU second", "rows/s"):
        yield Target(workload_prefix="read ", metric=metric, limit=1.0, at_least=True, is_ratio=True)


TARGETS = (*_read_targets(), *_lake_targets())
_NO_RATIO = {
    "driver cores",
    "broker cores",
    "reply KB",
    "other cores",
    "CPU us/row, JVM",
    "CPU us/row, Python",
    "CPU us/row, broker, not counted",
    "tasks",
}
_ROW_WIDTH = 43
_COLUMN_WIDTH = 34


def text_report(measurements: Sequence[Measurement], peers: Sequence[str], about: Iterable[str]) -> str:
    """The table: median (min-max) of each peer, and its ratio to Kafka's median."""
    lines = [*about, ""]
    has_targets = any(target.fits(one.workload, one.metric) for one in measurements for target in TARGETS)
    header = (
        f"{'':<{_ROW_WIDTH}}"
        + "".join(f"{peer:<{_COLUMN_WIDTH}}" for peer in peers)
        + ("target" if has_targets else "")
    )
    lines += [header, "-" * len(header)]
    last_workload = ""
    for (workload, metric), by_peer in _rows(measurements).items():
        if workload != last_workload:
            lines.append(workload)
            last_workload = workload
        reference = statistics.median(by_peer[KAFKA]) if KAFKA in by_peer else None
        cells = [_cell(by_peer.get(peer), None if peer == KAFKA else reference, metric) for peer in peers]
        verdict = _verdict(workload, metric, by_peer, peers, reference)
        lines.append(
            f"  {metric:<{_ROW_WIDTH - 2}}" + "".join(f"{cell:<{_COLUMN_WIDTH}}" for cell in cells) + verdict
        )
    return "\n".join(line.rstrip() for line in lines)


def write_json(path: Path, measurements: Sequence[Measurement], about: dict[str, Any]) -> None:
    """All single measurements with everything needed to repeat the run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"about": about, "measurements": [asdict(measured) for measured in measurements]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def _rows(measurements: Sequence[Measurement]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(workload, metric) -> peer -> values; in the order of first appearance."""
    order = {measured.workload: None for measured in measurements}
    rows: dict[tuple[str, str], dict[str, list[float]]] = {}
    for workload in order:
        for measured in measurements:
            if measured.workload == workload:
                by_peer = rows.setdefault((workload, measured.metric), {})
                by_peer.setdefault(measured.peer, []).append(measured.value)
    return rows


def _cell(values: list[float] | None, reference: float | None, metric: str) -> str:
    if not values:
        return "-"
    median = statistics.median(values)
    spread = f" ({_number(min(values))}-{_number(max(values))})" if len(values) > 1 else ""
    ratio = f" {median / reference:.2f}x" if reference and metric not in _NO_RATIO else ""
    return f"{_number(median)}{spread}{ratio}"


def _verdict(
    workload: str, metric: str, by_peer: dict[str, list[float]], peers: Sequence[str], reference: float | None
) -> str:
    """The target, and if the first of our columns meets it; empty where there is none."""
    ours = next((peer for peer in peers if peer.startswith("kafscale") and peer in by_peer), None)
    for target in TARGETS:
        if not target.fits(workload, metric):
            continue
        if ours is None or (target.is_ratio and not reference):
            return str(target)
        value = statistics.median(by_peer[ours])
        if target.is_ratio and reference:
            value /= reference
        return f"{target} {'met' if target.met(value) else 'MISSED'}"
    return ""


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
