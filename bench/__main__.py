"""`python -m bench`: measure brokers side by side and print a table; see docs/benchmarks.md."""

import os
import platform
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench import librdkafka
from bench.brokers import KAFKA, PEERS, Peer
from bench.kafka_libs import KafkaUnavailableError, java, kafka_version
from bench.payloads import KINDS, RANDOM
from bench.plan import Plan, quick_plan
from bench.process import filesystem_type
from bench.report import text_report, write_json
from bench.run import run, to_stderr
from bench.workloads import WORKLOADS

_RESULTS = Path(__file__).resolve().parent / "results"
_DEFAULT_PEERS = ("kafscale", KAFKA, "noop")


@click.command(help="Measure Kafscale beside Apache Kafka and print a table. Asserts nothing about times.")
@click.option("--quick", is_flag=True, help="Shorter windows and volumes: a direction in a few minutes.")
@click.option("--repeat", "repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="Workload; may be repeated.")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)), help="May be repeated.")
@click.option("--payload", default=RANDOM, show_default=True, type=click.Choice(KINDS))
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1, 900_000), help="Record bytes.")
@click.option("--partitions", default=6, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Where the brokers' data folders are made; should be a real disk.",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Default: bench/results/TIME.json."
)
def main(
    quick: bool,
    repeats: int,
    only: tuple[str, ...],
    names: tuple[str, ...],
    payload: str,
    sizes: tuple[int, ...],
    partitions: int,
    work_dir: Path,
    json_path: Path | None,
) -> None:
    peers = _available([PEERS[name] for name in names or _DEFAULT_PEERS])
    plan = _plan(quick=quick, payload=payload, partitions=partitions, sizes=sizes)
    about = _about(plan, peers, repeats, work_dir)
    chosen = [WORKLOADS[name] for name in only or WORKLOADS]
    outcome = run(peers, chosen, plan, repeats, work_dir, to_stderr)
    path = json_path or _RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    write_json(path, outcome.measurements, {**about, "failures": outcome.failures})
    click.echo(text_report(outcome.measurements, [peer.name for peer in peers], _about_lines(about)))
    for failure in outcome.failures:
        click.echo(f"FAILED {failure}")
    click.echo(f"\nEvery value: {path}")


def _plan(*, quick: bool, payload: str, partitions: int, sizes: tuple[int, ...]) -> Plan:
    changes: dict[str, Any] = {"payload": payload, "partitions": partitions}
    if sizes:
        changes["record_sizes"] = sizes
    return quick_plan(**changes) if quick else Plan(**changes)


def _available(peers: list[Peer]) -> list[Peer]:
    """The peers that this machine can run; what is missing is said, the rest is measured."""
    try:
        if any(peer.name == KAFKA for peer in peers):
            java()
            kafka_version()
    except KafkaUnavailableError as error:
        to_stderr(f"without Apache Kafka: {error}")
        return [peer for peer in peers if peer.name != KAFKA]
    return peers


def _about(plan: Plan, peers: list[Peer], repeats: int, work_dir: Path) -> dict[str, Any]:
    has_kafka = any(peer.name == KAFKA for peer in peers)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "filesystem": filesystem_type(work_dir),
        "load_average_before": list(os.getloadavg()),
        "python": platform.python_version(),
        "librdkafka": librdkafka.version(),
        "kafka": kafka_version() if has_kafka else None,
        "repeats": repeats,
        "peers": {peer.name: peer.describes for peer in peers},
        "plan": asdict(plan),
    }


def _about_lines(about: dict[str, Any]) -> list[str]:
    plan = about["plan"]
    produce = ", ".join(f"{name}={value}" for name, value in plan["produce_properties"].items())
    return [
        f"{about['time']}  {about['machine']}, data on {about['filesystem']}, "
        f"load average before: {about['load_average_before'][0]:.2f}",
        f"Python {about['python']}, librdkafka {about['librdkafka']}, Apache Kafka {about['kafka']}",
        *(f"{name}: {describes}" for name, describes in about["peers"].items()),
        f"{plan['partitions']} partitions, payload {plan['payload']}, {plan['seconds']:g} s windows, "
        f"{about['repeats']} repeats; median (min-max) ratio to kafka; MB = 10^6 bytes of values",
        f"producer: {produce}; in flight: {plan['in_flight_bytes'] >> 20} MiB, "
        f"at most {plan['in_flight_records']:,} records",
    ]


if __name__ == "__main__":
    main()
