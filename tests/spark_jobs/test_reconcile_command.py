"""`python -m spark_jobs.reconcile` after real exports: exit codes, and what it prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kafscale.protocol.compression import Codec
from spark_jobs.reconcile import main
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

EQUAL, FAILED, NOT_LEGAL, DIFFERENT = 0, 1, 2, 3


def reconcile(exporter: Exporter, *more: str) -> Result:
    return CliRunner().invoke(main, exporter.arguments(*more), env=exporter.environment())


def reconcile_json(exporter: Exporter, *more: str) -> tuple[int, dict[str, Any]]:
    result = reconcile(exporter, "--json", *more)
    assert result.stdout, result.output
    [fields] = json.loads(result.stdout)["topics"]
    assert isinstance(fields, dict)
    return result.exit_code, fields


def values(first: int, **more: object) -> list[Sent]:
    """JSON, a tombstone, and one that is neither."""
    texts = [json.dumps({"id": first + place, "tags": {"a": [place]}, **more}).encode() for place in range(8)]
    return [
        *(Sent(key=b"k", value=text, headers=(("h", None),)) for text in texts),
        Sent(key=None, value=None),
        Sent(key=b"", value=b"{not json"),
    ]


@pytest.mark.nightly
@pytest.mark.every_spark
def test_an_export_agrees_until_its_table_is_damaged(
    spark: SparkSession,
    tmp_path: Path,
    local_catalog: IcebergCatalog,
    new_table: Callable[[IcebergCatalog], str],
) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    exporter = Exporter(
        spark, writer.settings, "events", local_catalog, new_table(local_catalog), "--value-format", "json"
    )
    assert reconcile(exporter).exit_code == NOT_LEGAL

    writer.append(0, values(0), Codec.ZSTD, batch_records=3)
    writer.append(1, values(100), Codec.GZIP)
    exporter.export()
    writer.lead()
    writer.append(0, values(200, name="later"), Codec.SNAPPY)
    exporter.export()
    writer.append(1, values(300))
    writer.move_log_start(0, 4)

    status, fields = reconcile_json(exporter, "--range-size", "10")
    assert (status, fields["agrees"], fields["differences"]) == (EQUAL, True, [])
    first, second = fields["partitions"]
    rows = [
        (
            one["first_offset"],
            one["topic"] and one["topic"]["rows"],
            one["table"]["rows"],
            one["dead_letters"]["rows"],
        )
        for one in first["ranges"]
    ]
    assert rows == [(0, None, 4, 0), (4, 6, 5, 1), (10, 10, 9, 1)]
    assert second["lag"] == [{"first_offset": 10, "last_offset": 19}]
    assert fields["columns_not_compared"] == []

    spark.sql(f"UPDATE {exporter.table} SET value.tags.a = array(9) WHERE partition = 0 AND offset = 12")
    spark.sql(f"DELETE FROM {exporter.dead_letter_table} WHERE partition = 1")
    result = reconcile(exporter)
    assert result.exit_code == DIFFERENT, result.output
    assert "events-0: offset 12: 1 record not the same: value" in result.stdout
    assert "events-1: offset 9: 1 record missing from the table" in result.stdout
    assert "DIFFERENT in 2 of 3 ranges" in result.stdout

    result = reconcile(exporter, "--value-format", "bytes")
    assert result.exit_code == NOT_LEGAL
    assert "--value-format is not legal: it gives values of type binary" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--table", "local.db.t"), "no topic is named"),
        (("--topic", "events"), "Missing option '--table'"),
        (("--topic", "events", "--table", "t"), "--table 't' is not legal"),
        (("--topic", "events", "--table", "local.db.t", "--range-size", "0"), "0 is not in the range"),
    ],
)
def test_options_that_are_not_legal(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, arguments, env={"KAFSCALE_DATA_DIR": str(tmp_path)})
    assert result.exit_code == NOT_LEGAL
    assert says in result.output
