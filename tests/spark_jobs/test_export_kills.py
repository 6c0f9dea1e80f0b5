"""Kills of the driver, of its JVM, and of executors that are processes of their own; two exporters; retention.

After each of them the table and its dead letters are read with pyiceberg, counted and hashed, and compared with the
records as they were sent. A walk takes the kills in a random order; its seed is KAFSCALE_TEST_SEED.
"""

import hashlib
import os
import random
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.spark_jobs.support.export_process import ExportProcess, export_process
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.gated_export import Point
from tests.spark_jobs.support.held_reads import while_segments_are_read
from tests.spark_jobs.support.lake_stores import LakeStores, lake_stores
from tests.spark_jobs.support.processes import command_of, descendants_of
from tests.spark_jobs.support.rest_catalog import RestCatalogServer, rest_catalog_server
from tests.spark_jobs.support.sent_records import Sent, Stored
from tests.spark_jobs.support.server_catalogs import on_rest
from tests.spark_jobs.support.standalone_cluster import StandaloneCluster, standalone_cluster
from tests.spark_jobs.support.topic_writer import TopicWriter
from tests.support.etcd_server import skip_without_etcd
from tests.support.nightly import by_day
from tests.support.s3_install import s3_server_missing
from tests.support.spark_install import spark_libs_missing

# About 50 starts of Spark by night.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(4 * 3600)]
BROKEN = b"{broken"
LEASE_SEC = 5
Row = tuple[object, ...]


@dataclass(slots=True)
class Walk:
    """One topic, one table, and all that was done to them. `expected`: what the tables must have, by coordinates."""

    stores: LakeStores
    rest: RestCatalogServer
    cluster: StandaloneCluster
    writer: TopicWriter
    folder: Path
    chance: random.Random
    expected: dict[tuple[int, int], Stored] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Some records more; every ninth value is broken."""
        for partition in range(2):
            first = self.chance.randrange(10**6)
            count = self.chance.randint(20, 200)
            values = [BROKEN if one % 9 == 4 else b'{"id": %d}' % one for one in range(first, first + count)]
            records = [Sent(key=b"%d" % partition, value=value, headers=(("a", b"1"),)) for value in values]
            self.writer.append(partition, records, batch_records=self.chance.randint(5, 50))

    def exporting(self, *more: str, points: Sequence[Point] = ()) -> "ExportContext":
        """A run on this machine alone."""
        return ExportContext(self, ("--master", "local[1]", *more), points)

    def must_succeed(self, *more: str) -> None:
        """A run, and the comparison."""
        with self.exporting(*more) as run:
            assert run.finish() == 0, run.log_tail()
        self.compare()

    def compare(self) -> None:
        """Both tables have what was sent, once."""
        self.remember(self.writer.stored())
        good = [_row(one) for one in self.expected.values() if one.value != BROKEN]
        broken = [_row(one) for one in self.expected.values() if one.value == BROKEN]
        assert _digest(self._rows("kafka.events")) == _digest(good), self.kills
        assert _digest(self._rows("kafka.events_dead_letters")) == _digest(broken), self.kills

    def remember(self, records: Iterable[Stored]) -> None:
        """The tables have these from now on."""
        self.expected |= {(one.partition, one.offset): one for one in records}

    def _rows(self, table: str) -> list[Row]:
        rows = self.rest.catalog.load_table(table).scan().to_arrow().to_pylist()
        return [
            (
                row["partition"], row["offset"], row["key"], row["timestamp"].timestamp(),
                row["value"] if isinstance(row["value"], bytes) else b'{"id": %d}' % row["value"]["id"],
                tuple((one["key"], one["value"]) for one in row["headers"]),
            )
            for row in rows
        ]  # fmt: skip


class ExportContext:
    """An `ExportProcess` with the walk's topic, table and stores."""

    def __init__(self, walk: Walk, more: Sequence[str], points: Sequence[Point]) -> None:
        catalog = on_rest(walk.rest, "lake")
        arguments = [
            "--topic", "events", "--table", "lake.kafka.events", *catalog.spark_options(),
            "--value-format", "json", "--schema", "id BIGINT", "--lease-ttl", str(LEASE_SEC), "--wait", "120", *more,
        ]  # fmt: skip
        environment = store_environment(
            walk.stores.proxied if "spark://" in " ".join(more) else walk.stores.direct
        )
        environment["KAFSCALE_S3_NAMESPACE"] = walk.writer.settings.s3_namespace
        if "spark://" in " ".join(more):
            environment["SPARK_HOME"] = str(walk.cluster.home)
        self._context = export_process(
            walk.folder,
            arguments,
            points=points,
            environment=environment,
            spark={"spark.executor.memory": "512m"},
        )

    def __enter__(self) -> ExportProcess:
        return self._context.__enter__()

    def __exit__(self, *problem: object) -> None:
        self._context.__exit__(*problem)  # type: ignore[arg-type]


def _row(one: Stored) -> Row:
    return (one.partition, one.offset, one.key, one.timestamp_ms / 1000, one.value, one.headers)


def _digest(rows: Sequence[Row]) -> tuple[int, str]:
    return len(rows), hashlib.sha256(repr(sorted(rows, key=lambda row: row[:2])).encode()).hexdigest()


def kill_driver(walk: Walk) -> None:
    """The driver with its JVM and workers, at a point of its commits."""
    point = walk.chance.choice(list(Point))
    walk.kills.append(f"driver: {point.name}")
    with walk.exporting(points=[point]) as run:
        run.wait_at(point)
        run.kill_all()


def kill_jvm(walk: Walk) -> None:
    """The JVM alone: the driver ends by itself, with an error."""
    point = walk.chance.choice([Point.STAGED, Point.COMMITTING])
    walk.kills.append(f"jvm: {point.name}")
    with walk.exporting(points=[point]) as run:
        run.wait_at(point)
        (jvm,) = [pid for pid in descendants_of(run.pid) if "SparkSubmit" in command_of(pid)]
        os.kill(jvm, signal.SIGKILL)
        run.go_on(point)
        assert run.finish() == 1, run.log_tail()


def kill_executors(walk: Walk) -> None:
    """All executors while they read: others take their tasks, within the same run."""
    walk.kills.append("executors")
    killed: list[int] = []

    def kill() -> None:
        killed.extend(walk.cluster.executors())
        for executor in killed:
            os.kill(executor, signal.SIGKILL)

    with (
        walk.exporting("--master", walk.cluster.master) as run,
        while_segments_are_read(walk.stores.proxy, kill),
    ):
        assert run.finish() == 0, run.log_tail()
    assert killed, "no executor ran"
    walk.compare()


def two_exporters(walk: Walk) -> None:
    """One is paused before its commit until another one has exported the same; it wakes up and is refused."""
    walk.kills.append("two exporters")
    with walk.exporting(points=[Point.COMMITTING]) as late:
        late.wait_at(Point.COMMITTING)
        late.pause()
        walk.must_succeed()
        late.go_on(Point.COMMITTING)
        late.resume()
        assert late.finish() == 1, late.log_tail()
    walk.compare()


def retention(walk: Walk) -> None:
    """Records expire that a killed export had written and not committed."""
    walk.kills.append("retention")
    walk.must_succeed()
    walk.write()
    with walk.exporting(points=[Point.STAGED]) as run:
        run.wait_at(Point.STAGED)
        run.kill_all()
    # Dead letters are committed ahead of the rows of their batch.
    walk.remember(one for one in walk.writer.stored() if one.value == BROKEN)
    newest = [max(one.offset for one in walk.writer.stored(partition)) for partition in range(2)]
    for partition, offset in enumerate(newest):
        walk.writer.move_log_start(partition, offset - 5)
    with walk.exporting() as run:
        assert run.finish() == 1
        assert "expired before it was exported" in run.log_text(), run.log_tail()
    walk.must_succeed("--on-expired", "record")


STEPS = (kill_driver, kill_jvm, kill_executors, two_exporters, retention)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    skip_without_etcd()
    missing = s3_server_missing() or spark_libs_missing()
    if missing is not None:
        pytest.skip(missing)
    seed = int(os.environ.get("KAFSCALE_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"KAFSCALE_TEST_SEED={seed}")
    with (
        lake_stores(tmp_path / "stores") as stores,
        rest_catalog_server(tmp_path / "rest") as rest,
        standalone_cluster(tmp_path / "cluster") as cluster,
    ):
        writer = TopicWriter(replace(stores.direct, s3_namespace="kills"), "events", partitions=2)
        yield Walk(stores, rest, cluster, writer, tmp_path / "exports", random.Random(seed))


def test_a_walk_of_kills_neither_loses_nor_repeats_a_row(walk: Walk) -> None:
    steps = list(STEPS) * by_day(1, by_night=4)
    walk.chance.shuffle(steps)
    for step in steps:
        walk.write()
        step(walk)
    walk.must_succeed()
    print(f"{len(walk.expected)} records, {len(walk.kills)} steps: {', '.join(walk.kills)}")
