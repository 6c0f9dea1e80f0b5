"""A table that is exported again and again, with maintenance: `python -m bench.table_care`.

Each commit brings one record or more of every partition, straight after the one before. What counts is what stays
flat: seconds and CPU of a commit, and number and bytes of the table's files. The age after which snapshots expire is
none, because a commit here takes a fraction of the time between two commits of a schedule; the number that stays is
the default.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from bench.kafscale_broker import Kafscale
from kafscale.lake.export_state import decode_state, property_of
from kafscale.lake.table_care import MAX_SNAPSHOT_AGE_MS
from tests.support.spark_install import spark_libs

TOPIC: Final = "events"
TABLE: Final = "kafka.events"
SHOWN: Final = 50
"""The commits before a line of the report whose times it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The cost of a commit; `cpu_sec`: of this process, without Spark's JVM."""

    seconds: float
    cpu_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The files below the table's folder, by kind, and what the current metadata names."""

    snapshots: int
    data_files: int
    data_on_disk: int
    metadata_json: int
    newest_json_bytes: int
    avro: int
    metadata_bytes: int


@click.command(context_settings={"show_default": True})
@click.option("--engine", type=click.Choice(["iceberg", "spark"]), default="iceberg", help="What exports.")
@click.option("--commits", type=click.IntRange(1), default=1000)
@click.option("--partitions", type=click.IntRange(1), default=100)
@click.option("--records", type=click.IntRange(1), default=10, help="Of each partition in each commit.")
@click.option("--maintain-every", type=click.IntRange(0), default=100, help="Commits; 0: no maintenance.")
@click.option("--show-at", type=int, multiple=True, default=(10, 100, 250, 500, 750, 1000))
def main(
    *, engine: str, commits: int, partitions: int, records: int, maintain_every: int, show_at: Sequence[int]
) -> None:
    """Export a topic over and over, and print what a commit costs and what the table takes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-table-care-")))
        lake = folder / "lake"
        lake.mkdir()
        broker = Kafscale(folder, {"KAFSCALE_LOCAL_FSYNC": "false"})
        broker.start()
        stack.callback(broker.stop)
        os.environ["KAFSCALE_DATA_DIR"] = str(broker.data_folder)
        with broker.client() as client:
            client.create_topic(TOPIC, partitions)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 20})
        done: list[Commit] = []
        click.echo(_HEADER)
        for number in range(1, commits + 1):
            _produce(producer, partitions, records, number)
            done.append(_commit(engine, lake))
            if number in show_at or number == commits:
                click.echo(_line(number, done[-SHOWN:], _sizes(lake)))
            if maintain_every and number % maintain_every == 0:
                began = time.monotonic()
                _maintain(lake)
                took = time.monotonic() - began
                click.echo(f"{_line(number, done[-SHOWN:], _sizes(lake))}  after maintenance of {took:.1f} s")
        _check(lake, partitions, records * commits)


def _produce(producer: Producer, partitions: int, records: int, number: int) -> None:
    for partition in range(partitions):
        for record in range(records):
            producer.produce(TOPIC, b"%d of commit %d" % (record, number) * 5, b"key", partition)
    left = producer.flush(60)
    assert left == 0, f"{left} records are not acknowledged"


def _commit(engine: str, lake: Path) -> Commit:
    began, cpu = time.monotonic(), time.process_time()
    options = ("--quiet", "--table-property", f"{MAX_SNAPSHOT_AGE_MS}=0")
    if engine == "iceberg":
        from kafscale.commands.cli import main as kafscale

        _run(kafscale, ["export", TOPIC, "--to", str(lake), *options])
    else:
        from spark_jobs.export import main as export

        _run(export, ["--topic", TOPIC, "--table", f"local.{TABLE}", *_spark(lake), *options])
    return Commit(seconds=time.monotonic() - began, cpu_sec=time.process_time() - cpu)


def _maintain(lake: Path) -> None:
    from spark_jobs.maintain import main as maintain

    _run(maintain, ["--table", f"local.{TABLE}", *_spark(lake), "--quiet"])


def _spark(lake: Path) -> list[str]:
    """The catalog that `kafscale export --to FOLDER` makes, as Spark has it."""
    return [
        "--master", "local[2]", "--warehouse", f"file://{lake}", "--catalog", "local=jdbc",
        "--catalog-property", f"local.uri=jdbc:sqlite:{lake / 'catalog.db'}",
        "--catalog-property", "local.jdbc.schema-version=V1", "--conf", f"spark.jars={_database_driver()}",
        "--conf", "spark.sql.shuffle.partitions=4",
    ]  # fmt: skip


def _database_driver() -> str:
    return next(str(path) for path in spark_libs() if path.name.startswith("sqlite-jdbc"))


def _run(command: Any, arguments: list[str]) -> None:
    try:
        command.main(arguments, standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise


@contextmanager
def _table(lake: Path) -> Iterator[Any]:
    catalog = SqlCatalog("local", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=f"file://{lake}")
    try:
        yield catalog.load_table(TABLE)
    finally:
        catalog.close()


def _sizes(lake: Path) -> Sizes:
    with _table(lake) as table:
        snapshots = len(table.metadata.snapshots)
        data_files = len(list(table.scan().plan_files()))
        newest = Path(table.metadata_location.removeprefix("file://").removeprefix("file:"))
        folder = Path(table.location().removeprefix("file://").removeprefix("file:"))
    names = list((folder / "metadata").iterdir())
    return Sizes(
        snapshots=snapshots,
        data_files=data_files,
        data_on_disk=sum(1 for _ in (folder / "data").rglob("*.parquet")),
        metadata_json=sum(name.name.endswith(".json") for name in names),
        newest_json_bytes=newest.stat().st_size,
        avro=sum(name.suffix == ".avro" for name in names),
        metadata_bytes=sum(name.stat().st_size for name in names),
    )


_HEADER: Final = (
    "commits  s/commit  CPU s  snapshots  data files  on disk  metadata.json  newest kB  avro  metadata MB"
)


def _line(number: int, commits: Sequence[Commit], sizes: Sizes) -> str:
    seconds = statistics.median(one.seconds for one in commits)
    cpu = statistics.median(one.cpu_sec for one in commits)
    return (
        f"{number:>7}  {seconds:>8.2f}  {cpu:>5.2f}  {sizes.snapshots:>9}  {sizes.data_files:>10}  "
        f"{sizes.data_on_disk:>7}  {sizes.metadata_json:>13}  {sizes.newest_json_bytes / 1000:>9,.0f}  "
        f"{sizes.avro:>4}  {sizes.metadata_bytes / 1e6:>11.2f}"
    )


def _check(lake: Path, partitions: int, wanted: int) -> None:
    """Every record is in the table once. Raises `AssertionError`."""
    with _table(lake) as table:
        rows = table.scan(selected_fields=("partition", "offset")).to_arrow()
        state = decode_state(TOPIC, table.properties[property_of(TOPIC)])
    assert rows.num_rows == wanted * partitions, f"{rows.num_rows} rows, not {wanted * partitions}"
    assert rows.group_by(["partition", "offset"]).aggregate([]).num_rows == rows.num_rows, (
        "rows are there twice"
    )
    assert all(state.position(partition) == wanted for partition in range(partitions))
    click.echo(f"{rows.num_rows:,} rows, each once")


if __name__ == "__main__":
    main()
