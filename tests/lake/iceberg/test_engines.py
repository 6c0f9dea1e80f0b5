"""Tables of `kafscale export` in other engines: the same rows, counted and hashed apart from any of them."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyiceberg.table import StaticTable

from kafscale.protocol.compression import Codec
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.read_back import open_table
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter

Rows = Iterable[Mapping[str, Any]]
READ = 'SELECT "partition", "offset", key, value, "timestamp" FROM '


def pyiceberg_rows(metadata: Path) -> Rows:
    rows: list[dict[str, Any]] = StaticTable.from_metadata(str(metadata)).scan().to_arrow().to_pylist()
    return rows


def polars_rows(metadata: Path) -> Rows:
    polars = pytest.importorskip("polars")
    with mock.patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):  # else it warns of a plugin
        rows: list[dict[str, Any]] = polars.scan_iceberg(str(metadata)).collect().to_dicts()
    return rows


def duckdb_rows(metadata: Path) -> Rows:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as session:
        for extension in ("avro", "iceberg"):
            package = pytest.importorskip(f"duckdb_extension_{extension}")
            (path,) = Path(package.__file__).parent.rglob(f"{extension}.duckdb_extension")
            session.execute(f"INSTALL '{path}'; LOAD {extension}")
        session.execute("SET TimeZone='UTC'")
        rows: list[dict[str, Any]] = (
            session.sql(f"{READ} iceberg_scan('{metadata}')").to_arrow_table().to_pylist()
        )
    return rows


def clickhouse_rows(metadata: Path) -> Rows:
    chdb = pytest.importorskip("chdb")
    table = metadata.parent.parent
    with contextlib.chdir(table.parent):  # it reads nothing outside of this folder
        rows: list[dict[str, Any]] = chdb.query(f"{READ} icebergLocal('{table}')", "ArrowTable").to_pylist()
    return rows


ENGINES: dict[str, Callable[[Path], Rows]] = {
    "pyiceberg": pyiceberg_rows,
    "polars": polars_rows,
    "duckdb": duckdb_rows,
    "clickhouse": clickhouse_rows,
}


def digest(rows: Rows) -> tuple[int, str]:
    """Count and hash of all rows, in the order of their offsets."""
    ordered = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    hashed = hashlib.sha256()
    for row in ordered:
        key, value = (None if row[name] is None else _bytes(row[name]) for name in ("key", "value"))
        hashed.update(
            repr((row["partition"], row["offset"], key, value, _instant(row["timestamp"]))).encode()
        )
    return len(ordered), hashed.hexdigest()


def _bytes(value: Any) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else bytes(value)


def _instant(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_the_rows_of_the_topic(
    engine: str, exporter: LakeExporter, writer: TopicWriter
) -> None:
    for commit in range(3):
        for partition in range(2):
            records = [
                Sent(
                    key=None if number % 5 == 0 else b"%d" % number,
                    value=None if number % 7 == 0 else b"value %d of commit %d" % (number, commit),
                    headers=(("trace", b"1"),) if number % 3 == 0 else (),
                    timestamp_ms=1_700_000_000_000 + number * 20_000_000,
                )
                for number in range(50)
            ]
            writer.append(partition, records, Codec.ZSTD)
        exporter.export("--partition-by", "days(timestamp)")
    with open_table(exporter.catalog, exporter.table) as table:
        metadata = Path(table.metadata_location.removeprefix("file://"))
    assert digest(ENGINES[engine](metadata)) == digest(writer.rows())
    assert digest(writer.rows())[0] == 300
