"""`kafscale export --topics-by-config`: topics that are switched on, each as its configs say; and its metrics."""

import time
from pathlib import Path

from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from kafscale.cluster.iceberg_configs import (
    ENABLE,
    PARTITION_BY,
    STARTING_OFFSETS,
    TABLE,
    VALUE_FORMAT,
    WITHOUT_SPARK,
)
from kafscale.commands.cli import main
from kafscale.lake import metric_families as families
from kafscale.lake.iceberg.columns import TextFormat
from tests.lake.support.exporter import LakeExporter, Outcome
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.read_back import open_table, read_table
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter


def switch_on(writer: TopicWriter, **configs: str) -> None:
    names = {"table": TABLE, "format": VALUE_FORMAT, "start": STARTING_OFFSETS, "partition": PARTITION_BY}
    said = {ENABLE: "true"} | {names[key]: value for key, value in configs.items()}
    writer.run(lambda topic: topic.set_configs(said))


def run(exporter: LakeExporter, *options: str) -> Outcome:
    arguments = ["export", "--to", str(exporter.folder), "--topics-by-config", *options]
    done = CliRunner().invoke(main, arguments, env=store_environment(exporter.settings))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(status=done.exit_code, text=done.output)


def samples(path: Path) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if set(sample.labels) == {"topic"}
    }


def test_topics_are_exported_as_they_say(exporter: LakeExporter, writer: TopicWriter, tmp_path: Path) -> None:
    assert run(exporter).status == 0, "none is switched on"
    assert not exporter.exists()

    letters, silent, wrong = (
        TopicWriter(writer.settings, name) for name in ("letters", "silent", "wrong.format")
    )
    for one in (writer, letters, silent, wrong):
        one.append(0, [Sent(value=b"\xff"), *sent(3)])
    switch_on(writer)
    switch_on(letters, table="mail", format="string", partition="days(timestamp), topic")
    switch_on(wrong, format="json")
    began, metrics = time.time(), tmp_path / "lake.prom"
    done = run(exporter, "--metrics-file", str(metrics))
    assert done.status == 1, "a topic could not be exported"
    assert (
        "wrong.format: FAILED: topic config kafscale.iceberg.value.format=json is not supported" in done.text
    )
    assert exporter.stored_rows() == writer.rows()
    mail = read_table(exporter.catalog, "local.kafka.mail")
    assert [row["offset"] for row in mail.rows] == [1, 2, 3]
    with open_table(exporter.catalog, "local.kafka.mail") as table:
        assert [one.name for one in table.spec().fields] == ["timestamp_day", "topic"]
    assert "silent" not in done.text

    found = samples(metrics)
    assert found[families.ROWS.name, "shop.orders"] == 4
    assert found[families.DEAD_LETTERS.name, "letters"] == 1
    assert found[families.FAILURES.name, "wrong.format"] == 1
    assert found[families.TOPIC_LAG.name, "letters"] == 0
    assert began - 1 <= found[families.COMPLETE.name, "letters"] <= time.time()
    assert 0 <= found[families.TOPIC_LAG_SECONDS.name, "letters"] < time.time() - began + 1

    switch_on(wrong, start="latest")
    only = run(exporter, "--topic-pattern", r"wrong\..*", "--metrics-file", str(metrics))
    assert only.status == 0, only.text
    assert "letters ->" not in only.text
    assert samples(metrics)[families.ROWS.name, "letters"] == 3, "counters go on"


def test_formats_without_spark_are_those_that_the_operator_knows() -> None:
    assert {str(one) for one in TextFormat} == {str(one) for one in WITHOUT_SPARK}


def test_options_that_choose_no_topic_are_refused(exporter: LakeExporter) -> None:
    for arguments, words in (
        ((), "no topic is named"),
        (("orders", "--topic-pattern", "x"), "--topic-pattern is for --topics-by-config"),
        (("orders", "--table-namespace", "x"), "--table-namespace is of no use"),
        (("orders", "--continuous", "--backfill-from", "earliest"), "--continuous is of no use"),
    ):
        done = CliRunner().invoke(main, ["export", "--to", str(exporter.folder), *arguments])
        assert (done.exit_code, words in done.output) == (2, True), done.output
    assert not exporter.folder.exists()
