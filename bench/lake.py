"""Reading a topic into Spark, beside Spark's own Kafka source: `python -m bench.lake`.

The same records, in the same batches, are written to Kafscale and to Apache Kafka. Then one Spark session reads
them in turn, from Kafscale's data folder and from the Kafka broker, every column of every row, into a sink that
throws them away and into an Iceberg table. What counts is the CPU of everything that takes part in Spark: the JVM
and the Python workers. The Kafka broker's is shown beside it and not counted.
"""

import os
import platform
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pyspark

from bench.brokers import BrokerError
from bench.kafka_libs import KafkaUnavailableError, java, kafka_version
from bench.lake_jars import KAFKA_SOURCE, lake_jars
from bench.lake_peers import KAFSCALE, LAKE_PEERS, LakePeer
from bench.lake_records import CODECS, Dataset
from bench.lake_run import KAFSCALE_SETTINGS, LakePlan, LakeRun
from bench.lake_spark import SparkProcessError
from bench.lake_specs import SINKS
from bench.librdkafka import LibrdkafkaError
from bench.measurement import Measurement
from bench.payloads import KINDS, LOG
from bench.peers import KAFKA
from bench.process import filesystem_type
from bench.report import text_report, write_json
from bench.run import to_stderr
from kafscale.errors import StartupError

_RESULTS = Path(__file__).resolve().parent / "results"
_FAILURES = (BrokerError, KafkaUnavailableError, LibrdkafkaError, SparkProcessError, StartupError)
_TINY_RECORDS_OF_PARTITION = 10


@click.command(
    help="Measure reads into Spark, beside Spark's own Kafka source over Apache Kafka. Asserts nothing."
)
@click.option(
    "--size", "sizes", multiple=True, default=(100, 1024), show_default=True, type=click.IntRange(1, 900_000)
)
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    default=("none", "snappy", "zstd"),
    show_default=True,
    type=click.Choice(CODECS),
)
@click.option("--sink", "sinks", multiple=True, default=SINKS, show_default=True, type=click.Choice(SINKS))
@click.option("--cores", multiple=True, default=(1, 2), show_default=True, type=click.IntRange(min=1))
@click.option(
    "--peer",
    "names",
    multiple=True,
    default=(KAFSCALE, KAFKA),
    show_default=True,
    type=click.Choice(list(LAKE_PEERS)),
)
@click.option(
    "--megabytes", default=250, show_default=True, type=click.IntRange(min=1), help="Of values, in a topic."
)
@click.option("--partitions", default=4, show_default=True, type=click.IntRange(min=1))
@click.option("--batch-bytes", default=1_000_000, show_default=True, help="The producer's batch.size.")
@click.option("--payload", default=LOG, show_default=True, type=click.Choice(KINDS))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--warm-ups",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of every row, for every peer.",
)
@click.option("--memory", default="2g", show_default=True, help="spark.driver.memory, for every peer.")
@click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="NAME=VALUE", help="Of Spark's Kafka source."
)
@click.option("--kafscale-option", "kafscale_options", multiple=True, metavar="NAME=VALUE", help="Of ours.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Default: bench/results/.")
def main(
    sizes: tuple[int, ...],
    codecs: tuple[str, ...],
    sinks: tuple[str, ...],
    cores: tuple[int, ...],
    names: tuple[str, ...],
    megabytes: int,
    partitions: int,
    batch_bytes: int,
    payload: str,
    rounds: int,
    warm_ups: int,
    memory: str,
    kafka_options: tuple[str, ...],
    kafscale_options: tuple[str, ...],
    work_dir: Path,
    json_path: Path | None,
) -> None:
    datasets = tuple(
        _dataset(size, codec, megabytes * 1_000_000 // size, partitions, batch_bytes, payload)
        for size in sizes
        for codec in codecs
    )
    plan = LakePlan(
        datasets=datasets,
        tiny=replace(datasets[0], records=partitions * _TINY_RECORDS_OF_PARTITION),
        sinks=sinks,
        cores=cores,
        rounds=rounds,
        warm_ups=warm_ups,
        memory=memory,
        kafka_options=_pairs(kafka_options),
        kafscale_options=_pairs(kafscale_options),
    )
    path = json_path or _RESULTS / f"lake-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    measured, about = _measure(plan, [LAKE_PEERS[name] for name in names], work_dir, path)
    click.echo(text_report(measured, names, _about_lines(about)))
    click.echo(f"\nEvery value: {path}")


def _measure(
    plan: LakePlan, peers: list[LakePeer], work_dir: Path, path: Path
) -> tuple[list[Measurement], dict[str, Any]]:
    """The measurements are in the file also if a run fails. Raises `ClickException`."""
    with tempfile.TemporaryDirectory(prefix="kafscale-lake-", dir=work_dir) as folder:
        run = LakeRun(plan, peers, Path(folder), to_stderr)
        try:
            java()
            jars = lake_jars()
            about = _about(plan, peers, work_dir)
            try:
                run.run(jars)
            finally:
                if run.measured:
                    write_json(path, run.measured, about)
        except _FAILURES as error:
            raise click.ClickException(str(error)) from error
    return run.measured, about


def _dataset(
    record_bytes: int, codec: str, records: int, partitions: int, batch_bytes: int, payload: str
) -> Dataset:
    return Dataset(
        record_bytes=record_bytes,
        codec=codec,
        records=max(1, records),
        partitions=partitions,
        batch_bytes=batch_bytes,
        payload=payload,
    )


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in given]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _about(plan: LakePlan, peers: list[LakePeer], work_dir: Path) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "filesystem": filesystem_type(work_dir),
        "load_average_before": list(os.getloadavg()),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "kafka": kafka_version(),
        "kafka_source": [jar.stem for jar in KAFKA_SOURCE.paths()],
        "kafscale_settings": KAFSCALE_SETTINGS,
        "peers": {peer.name: peer.describes for peer in peers},
        "plan": asdict(plan),
    }


def _about_lines(about: dict[str, Any]) -> list[str]:
    plan = about["plan"]
    first = plan["datasets"][0]
    return [
        f"{about['time']}  {about['machine']}, data on {about['filesystem']}, "
        f"load average before: {about['load_average_before'][0]:.2f}",
        f"Python {about['python']}, PySpark {about['pyspark']}, Apache Kafka {about['kafka']}",
        f"Spark's Kafka source: {', '.join(about['kafka_source'])}",
        *(f"{name}: {describes}" for name, describes in about["peers"].items()),
        f"{first['partitions']} partitions, payload {first['payload']}, keys of 16 bytes, "
        f"batches of {first['batch_bytes']:,} bytes; "
        + ", ".join(sorted({f"{data['records']:,} x {data['record_bytes']} B" for data in plan["datasets"]})),
        f"{plan['rounds']} rounds after {plan['warm_ups']} warm-ups; median (min-max) ratio to kafka; "
        "CPU: the JVM and the Python workers",
    ]


if __name__ == "__main__":
    main()
