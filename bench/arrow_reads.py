"""A topic as Arrow, beside a consumer and beside Parquet of the same records: `python -m bench.arrow_reads`.

A broker with embedded stores is written to with librdkafka. Then each way reads all of it in a process of its own:
confluent-kafka's consumer from the broker, `kafscale.read` from its data folder, and pyarrow and DuckDB from a
Parquet file that `kafscale.read` made. DuckDB is measured if it is installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from bench.arrow_readers import ARROW_DUCKDB, CONFLUENT, PARQUET_DUCKDB, WAYS, Outcome, Task
from bench.brokers import BrokerError
from bench.kafscale_broker import Kafscale
from bench.lake_records import CODECS, Dataset, write
from bench.librdkafka import LibrdkafkaError
from bench.payloads import KINDS, LOG

_ROOT = Path(__file__).resolve().parents[1]
_BATCH_BYTES = 1_000_000


class ReaderError(Exception):
    """A reading process failed; the message has what it said."""


@click.command()
@click.option("--records", type=click.IntRange(1), default=10_000_000, show_default=True)
@click.option("--record-bytes", type=click.IntRange(1, 900_000), default=100, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 1000), default=4, show_default=True)
@click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--payload", type=click.Choice(KINDS), default=LOG, show_default=True)
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only this one. May be repeated.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--work-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the data goes.")
def main(
    records: int,
    record_bytes: int,
    partitions: int,
    codec: str,
    payload: str,
    ways: tuple[str, ...],
    rounds: int,
    work_dir: Path | None,
) -> None:
    """Measure reads of a topic as Arrow. Asserts nothing but the number of records."""
    dataset = Dataset(
        record_bytes=record_bytes,
        codec=codec,
        records=records,
        partitions=partitions,
        batch_bytes=_BATCH_BYTES,
        payload=payload,
    )
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="arrow-reads-", dir=work_dir))
            for line in measured(dataset, ways or WAYS, rounds, Path(folder)):
                click.echo(line)
    except (BrokerError, LibrdkafkaError, ReaderError) as problem:
        raise click.ClickException(str(problem)) from problem


def measured(dataset: Dataset, ways: tuple[str, ...], rounds: int, folder: Path) -> Iterator[str]:
    """Lines of the report. Raises `BrokerError`, `LibrdkafkaError`, `ReaderError`."""
    broker = Kafscale(folder)
    try:
        broker.start()
        write(dataset, broker)
        cores = f"{dataset.partitions} partitions, {os.cpu_count()} cores"
        yield f"{dataset.records:,} records of {dataset.title}, {cores}"
        yield f"{'':26}{'records/s':>12}{'CPU µs/record':>15}{'broker µs':>11}{'peak MB':>9}"
        for way in WAYS:
            if way not in ways:
                continue
            if way in (ARROW_DUCKDB, PARQUET_DUCKDB) and importlib.util.find_spec("duckdb") is None:
                yield f"{way:26}{'DuckDB is not installed':>24}"
                continue
            for _ in range(rounds):
                yield _measured(dataset, way, broker, folder)
    finally:
        broker.remove()


def _measured(dataset: Dataset, way: str, broker: Kafscale, folder: Path) -> str:
    task = Task(
        way=way,
        topic=dataset.topic,
        partitions=dataset.partitions,
        records=dataset.records,
        data_folder=str(broker.data_folder),
        bootstrap=broker.bootstrap,
        parquet=str(folder / "topic.parquet"),
    )
    before = broker.cpu()
    outcome = _run(task)
    broker_seconds = broker.cpu() - before
    if outcome.records != dataset.records:
        raise ReaderError(f"{way}: {outcome.records} records came, {dataset.records} were written")
    shown = f"{broker_seconds / dataset.records * 1e6:11.2f}" if way == CONFLUENT else f"{'':>11}"
    return (
        f"{way:26}{outcome.records / outcome.seconds:12,.0f}{outcome.cpu_seconds / outcome.records * 1e6:15.2f}"
        f"{shown}{outcome.peak_bytes / 1e6:9.0f}"
    )


def _run(task: Task) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "bench.arrow_readers"],
        input=json.dumps(asdict(task)),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    if done.returncode:
        raise ReaderError(f"{task.way}: {done.stderr.strip()[-2000:]}")
    return Outcome(**json.loads(done.stdout))


if __name__ == "__main__":
    main()
