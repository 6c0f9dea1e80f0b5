"""`python -m bench`: measure brokers side by side and print a table; see docs/benchmarks.md."""

import os
import platform
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench import librdkafka
from bench.goals import figures, goals_text
from bench.kafka_libs import KafkaUnavailableError, java, kafka_version
from bench.measurement import Measurement
from bench.payloads import KINDS, RANDOM
from bench.peers import DEFAULT_PEERS, KAFKA, PEERS, Peer
from bench.plan import Plan, quick_plan
from bench.process import filesystem_type
from bench.report import text_report, write_json
from bench.run import Outcome, expected_seconds, run, to_stderr
from bench.workloads.registry import WORKLOADS
from bench.workloads.workload import Workload

_RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options of the command line."""

    peers: Sequence[Peer]
    workloads: Sequence[Workload]
    plan: Plan
    repeats: int
    work_dir: Path


@click.command(help="Measure Kafscale beside Apache Kafka and print a table. Asserts nothing about times.")
@click.option("--quick", is_flag=True, help="Shorter windows and volumes, fewer kinds: a first impression.")
@click.option("--repeat", "repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="Workload; may be repeated.")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)), help="May be repeated.")
@click.option("--payload", default=RANDOM, show_default=True, type=click.Choice(KINDS))
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1, 900_000), help="Record bytes.")
@click.option("--partitions", multiple=True, type=click.IntRange(min=1), help="Of throughput and cold.")
@click.option("--standing", multiple=True, type=click.IntRange(min=0), help="Idle partitions.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Where the brokers' data folders are created; should be a real disk.",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Default: bench/results/TIME.json."
)
@click.option("--list", "only_lists", is_flag=True, help="List the workloads with their times, and exit.")
def main(
    quick: bool,
    repeats: int,
    only: tuple[str, ...],
    names: tuple[str, ...],
    payload: str,
    sizes: tuple[int, ...],
    partitions: tuple[int, ...],
    standing: tuple[int, ...],
    work_dir: Path,
    json_path: Path | None,
    only_lists: bool,
) -> None:
    changes = {"record_sizes": sizes, "partition_counts": partitions, "standing_partitions": standing}
    asked = _Asked(
        peers=_available([PEERS[name] for name in names or DEFAULT_PEERS]),
        workloads=[WORKLOADS[name] for name in only or WORKLOADS],
        plan=_plan(quick, {"payload": payload, **{name: value for name, value in changes.items() if value}}),
        repeats=repeats,
        work_dir=work_dir,
    )
    expected = expected_seconds(asked.peers, asked.workloads, asked.plan, repeats)
    if only_lists:
        click.echo(_listed(asked, expected))
        return
    to_stderr(f"about {sum(expected.values()) / 60:.0f} minutes")
    about = _about(asked)
    begin = time.monotonic()
    outcome = run(asked.peers, asked.workloads, asked.plan, repeats, work_dir, to_stderr)
    about |= {
        "failures": outcome.failures,
        "expected_seconds": expected,
        "seconds": outcome.seconds,
        "total_seconds": time.monotonic() - begin,
    }
    path = json_path or _RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    write_json(path, outcome.measurements, about | {"to_reach": _to_reach(outcome.measurements)})
    _print(asked, outcome, about, path)


def _plan(quick: bool, changes: dict[str, Any]) -> Plan:
    return quick_plan(**changes) if quick else Plan(**changes)


def _print(asked: _Asked, outcome: Outcome, about: dict[str, Any], path: Path) -> None:
    names = [peer.name for peer in asked.peers]
    click.echo(text_report(outcome.measurements, names, _about_lines(about)))
    ours = [peer.name for peer in asked.peers if peer.is_kafscale]
    click.echo(f"\n{goals_text(outcome.measurements, ours)}\n")
    for failure in outcome.failures:
        click.echo(f"FAILED {failure}")
    took = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in outcome.seconds.items())
    click.echo(f"{about['total_seconds'] / 60:.1f} minutes: {took}")
    click.echo(f"Every value: {path}")


def _listed(asked: _Asked, expected: dict[str, float]) -> str:
    lines = [
        f"{workload.name:<12} {expected[workload.name] / 60:5.1f} min  {workload.describes}\n"
        f"{'':<24}limited by {workload.limited_by}"
        for workload in asked.workloads
    ]
    return "\n".join([*lines, f"{'all':<12} {sum(expected.values()) / 60:5.1f} min"])


def _to_reach(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    return [
        {
            "goal": figure.goal.name,
            "at_least": figure.goal.at_least,
            "aim": figure.goal.aim,
            "row": figure.row,
            "values": dict(figure.values),
        }
        for figure in figures(measurements)
    ]


def _available(peers: list[Peer]) -> list[Peer]:
    """The peers that this machine can run; missing ones are reported, the others are measured."""
    try:
        if any(peer.name == KAFKA for peer in peers):
            java()
            kafka_version()
    except KafkaUnavailableError as error:
        to_stderr(f"without Apache Kafka: {error}")
        return [peer for peer in peers if peer.name != KAFKA]
    return peers


def _about(asked: _Asked) -> dict[str, Any]:
    has_kafka = any(peer.name == KAFKA for peer in asked.peers)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "filesystem": filesystem_type(asked.work_dir),
        "load_average_before": list(os.getloadavg()),
        "python": platform.python_version(),
        "librdkafka": librdkafka.version(),
        "kafka": kafka_version() if has_kafka else None,
        "repeats": asked.repeats,
        "peers": {peer.name: peer.describes for peer in asked.peers},
        "workloads": {
            workload.name: {"describes": workload.describes, "limited_by": workload.limited_by}
            for workload in asked.workloads
        },
        "plan": asdict(asked.plan),
    }


def _about_lines(about: dict[str, Any]) -> list[str]:
    plan = about["plan"]
    produce = ", ".join(f"{name}={value}" for name, value in plan["produce_properties"].items())
    return [
        f"{about['time']}  {about['machine']}, data on {about['filesystem']}, "
        f"load average before: {about['load_average_before'][0]:.2f}",
        f"Python {about['python']}, librdkafka {about['librdkafka']}, Apache Kafka {about['kafka']}",
        *(f"{name}: {describes}" for name, describes in about["peers"].items()),
        f"payload {plan['payload']}, {plan['seconds']:g} s windows, "
        f"{about['repeats']} repeats; median (min-max) ratio to kafka; MB = 10^6 bytes of values",
        f"producer: {produce}",
    ]


if __name__ == "__main__":
    # SIGTERM reports the results and leaves no broker behind, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
