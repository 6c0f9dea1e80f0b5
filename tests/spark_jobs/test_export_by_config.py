"""The Spark job exports what topics' configs switch on, each as it says; between rounds topics come and go."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafscale.cluster.iceberg_configs import ENABLE, PARTITION_BY, VALUE_FORMAT
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter
from tests.spark_jobs.support.read_back import open_table, read_table, table_exists
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC, wait_until

NewTable = Callable[[IcebergCatalog], str]


class ByConfig(Exporter):
    """Names no topic: those that are switched on."""

    def arguments(self, *more: str) -> list[str]:
        return ["--table", self.table, "--topics-by-config", *more]


def switch(writer: TopicWriter, configs: dict[str, str]) -> None:
    writer.run(lambda topic: topic.set_configs(configs))


@pytest.mark.nightly
@pytest.mark.every_spark
def test_topics_are_exported_as_they_say_and_come_and_go(
    spark: SparkSession, tmp_path: Path, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    writer, late = (TopicWriter(embedded(tmp_path), name) for name in ("orders", "late.one"))
    writer.append(0, [Sent(value=b'{"id": 5}'), Sent(value=b"no json")])
    late.append(0, [Sent(value=b"text")])
    table = new_table(local_catalog)
    orders, later = f"{table}_orders", f"{table}_late_one"
    exporter = ByConfig(spark, writer.settings, "", local_catalog, f"{table}_{{topic}}")
    switch(writer, {ENABLE: "true", VALUE_FORMAT: "json", PARTITION_BY: "days(timestamp)"})
    problems: list[BaseException] = []
    ended = threading.Event()

    def has_rows(name: str) -> bool:
        return table_exists(local_catalog, name) and bool(read_table(local_catalog, name).rows)

    def switch_topics() -> None:
        try:
            wait_until(lambda: has_rows(orders), "rows of the first topic", PATIENCE_SEC)
            switch(writer, {})
            switch(late, {ENABLE: "true"})
            wait_until(lambda: has_rows(later), "rows of the second topic", PATIENCE_SEC)
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            problems.append(problem)
        finally:
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=switch_topics, name="switch")
    thread.start()
    try:
        done = exporter.run("--continuous", "--interval", "1")
    finally:
        ended.set()
        thread.join()
    if problems:
        raise problems[0]
    assert done.exit_code == 0, done.output
    assert "orders: is not exported any more" in done.output
    assert [row["value"] for row in read_table(local_catalog, orders).rows] == [{"id": 5}]
    assert len(read_table(local_catalog, f"{orders}_dead_letters").rows) == 1
    with open_table(local_catalog, orders) as found:
        assert [one.name for one in found.spec().fields] == ["timestamp_day"]
    assert [row["value"] for row in read_table(local_catalog, later).rows] == [b"text"]
