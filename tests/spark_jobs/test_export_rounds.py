"""End to end: rounds of a job with a pattern, and runs that have nothing to do."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.read_back import read_table, table_exists
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC, wait_until

NewTable = Callable[[IcebergCatalog], str]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    writer.append(0, sent(10))
    writer.lead()
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(spark, writer.settings, "events", local_catalog, new_table(local_catalog))


def test_a_topic_that_is_created_meanwhile_is_exported(writer: TopicWriter, exporter: Exporter) -> None:
    rule = f"{exporter.table}_{{topic}}"
    tables = {topic: rule.replace("{topic}", topic) for topic in ("events", "later")}
    written: list[TopicWriter] = []
    ended = threading.Event()
    problems: list[BaseException] = []

    def has_rows(topic: str, count: int) -> bool:
        if ended.is_set():
            return True
        catalog, table = exporter.catalog, tables[topic]
        return table_exists(catalog, table) and len(read_table(catalog, table).rows) == count

    def create() -> None:
        try:
            wait_until(lambda: has_rows("events", 10), "the first topic", PATIENCE_SEC)
            later = TopicWriter(writer.settings, "later")
            later.append(0, sent(4))
            written.append(later)
            wait_until(lambda: has_rows("later", 4), "the topic created meanwhile", PATIENCE_SEC)
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            problems.append(problem)
        finally:
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=create, name="creator")
    thread.start()
    try:
        done = exporter.run(
            *("--topic-pattern", "events|later", "--table", rule, "--continuous", "--interval", "1"),
            *("--starting-offsets", "earliest"),
        )
    finally:
        ended.set()
        thread.join()
    if problems:
        raise problems[0]
    assert done.exit_code == 0, done.output
    assert "later: a new topic, which is exported from now on" in done.output
    assert in_order(read_table(exporter.catalog, tables["later"]).rows) == written[0].rows()


def test_nothing_to_export(writer: TopicWriter, exporter: Exporter, tmp_path: Path) -> None:
    """The topic is up to date, without a commit; options are checked as if there were something."""
    before = exporter.export()
    done = exporter.run("--json", "--quiet")
    assert done.exit_code == 0, done.output
    (topic,) = json.loads(done.output)["topics"]
    assert (topic["finished"], topic["rows"], topic["lag"]) == (True, 0, 0)
    broken = tmp_path / "broken.avsc"
    broken.write_text('{"type": "record"}')
    for options, told in (
        (("--value-format", "avro", "--schema-file", str(broken)), "is no Avro schema"),
        (("--value-format", "json", "--schema", "id BIGNUM"), "legal is"),
        (("--value-format", "string", "--message", "shop.Order"), "takes no message name"),
        (("--sort-by", "hash(key)"), "each term must be"),
        (("--partition-by", "weeks(timestamp)"), "each term must be"),
        (("--starting-offsets", '{"event": {"0": 1}}'), "names topic 'event', which is not exported"),
    ):
        refused = exporter.run(*options)
        assert refused.exit_code == 2, (options, refused.output)
        assert told in refused.output
    assert exporter.read().history == before.history
