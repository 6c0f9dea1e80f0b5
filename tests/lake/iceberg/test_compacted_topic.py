"""Compacted topics: what compactions remove is in the table or it is not, and nothing else is missing or twice."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.arrow.split_columns import read_split
from kafscale.lake.iceberg.topic_table import IcebergTable
from tests.lake.iceberg.test_reconcile import differences, fields_of, reconcile
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.compaction import compact, kept_offsets, set_compacted
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter

KEYS = 10


def update_all(writer: TopicWriter, rounds: int, first: int = 0) -> None:
    """A segment with an update of each key, for each round."""
    for number in range(first, first + rounds):
        writer.append(0, [Sent(key=b"key-%d" % key, value=b"%d" % number) for key in range(KEYS)])


def offsets_in(exporter: LakeExporter, partition: int = 0) -> list[int]:
    return [row["offset"] for row in exporter.stored_rows() if row["partition"] == partition]


@pytest.fixture
def topic(writer: TopicWriter) -> TopicWriter:
    """Ten updates of each key in a topic that is to be compacted."""
    set_compacted(writer)
    update_all(writer, 10)
    return writer


def test_a_topic_of_which_most_is_compacted_away(exporter: LakeExporter, topic: TopicWriter) -> None:
    compact(topic, 0)
    kept = kept_offsets(topic, 0)
    assert kept == {*range(80, 90), *range(90, 100)}
    exporter.export()
    assert exporter.stored_rows() == [row for row in topic.rows() if row["offset"] in kept]
    assert exporter.state().exported == {0: ((0, 100),)}
    assert exporter.run().status == 0
    assert len(offsets_in(exporter)) == len(kept)


def before_each(work: Callable[..., Any], change: Callable[[], None]) -> Callable[..., Any]:
    """`work`, before the first call of which the change takes place."""
    left = [change]

    def changed(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return work(*arguments, **named)

    return changed


@pytest.mark.parametrize("is_by_default", [False, True], ids=["by its policy", "by the broker's default"])
@pytest.mark.parametrize("place", ["plan", "read"])
def test_a_compaction_between_plan_and_read(
    exporter: LakeExporter,
    writer: TopicWriter,
    place: str,
    is_by_default: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update_all(writer, 10)
    if not is_by_default:
        set_compacted(writer)
    change = lambda: compact(writer, 0)  # noqa: E731
    if place == "plan":
        monkeypatch.setattr(IcebergTable, "write", before_each(IcebergTable.write, change))
    else:
        late = before_each(read_split, change)
        monkeypatch.setattr("kafscale.lake.iceberg.records.read_split", late)
    exporter.export()
    assert exporter.state().exported == {0: ((0, 100),)}
    found = offsets_in(exporter)
    assert len(found) == len(set(found))
    assert kept_offsets(writer, 0) <= set(found)
    assert len(exporter.files()) == 1, "files of a batch that was planned again are gone"


def test_exported_in_part_before_and_after_a_compaction(exporter: LakeExporter, topic: TopicWriter) -> None:
    exporter.export()
    update_all(topic, 10, first=10)
    compact(topic, 0)
    exporter.export()
    kept = kept_offsets(topic, 0)
    assert offsets_in(exporter) == sorted({*range(100), *kept})
    assert exporter.state().exported == {0: ((0, 200),)}
    fields = fields_of(exporter)
    assert fields["agrees"]
    (span,) = fields["partitions"][0]["ranges"]
    assert (span["topic"]["rows"], span["table"]["rows"], span["compacted_away"]) == (20, 20, 100)
    assert fields["is_compacted"]
    shown = reconcile(exporter)
    assert "100 rows are of records that were compacted away, whose values were not compared" in shown.text


def test_a_batch_that_ends_inside_of_a_compacted_segment(exporter: LakeExporter, topic: TopicWriter) -> None:
    compact(topic, 0)
    exporter.export("--starting-offsets", '{"shop.orders": {"0": 85}}')
    assert offsets_in(exporter) == list(range(85, 100))


def test_what_a_compacted_topic_still_has_must_be_in_the_table(
    exporter: LakeExporter, topic: TopicWriter
) -> None:
    exporter.export()
    compact(topic, 0)
    with exporter.opened_catalog() as catalog:
        table = catalog.load_table(("kafka", "shop_orders"))
        again = table.scan(row_filter="offset = 7 OR offset = 95").to_arrow()
        table.delete("offset = 83 OR offset = 12")
        table.append(again)
    fields = fields_of(exporter)
    assert differences(fields) == [("MISSING", 0, 83, 83), ("DUPLICATE", 0, 95, 95)]
    (span,) = fields["partitions"][0]["ranges"]
    # Of records that are gone it is no difference that one is missing, but that one is there twice.
    assert (span["compacted_away"], span["duplicates"]) == (80, 1)


def test_a_topic_that_is_not_compacted_has_all_its_records(
    exporter: LakeExporter, writer: TopicWriter
) -> None:
    update_all(writer, 2)
    exporter.export()
    fields = fields_of(exporter)
    assert fields["agrees"]
    assert not fields["is_compacted"]
    assert fields["partitions"][0]["ranges"][0]["compacted_away"] == 0


def test_tables_with_one_row_for_each_key_are_sparks(exporter: LakeExporter, topic: TopicWriter) -> None:
    done = exporter.run("--mode", "upsert")
    assert done.status == 2
    assert "python -m spark_jobs.export --topic shop.orders --mode upsert" in done.text
    exporter.export("--mode", "append")
    with exporter.opened_catalog() as catalog:
        table = catalog.load_table(("kafka", "shop_orders"))
        with table.transaction() as changes:
            changes.set_properties({"kafscale.mode.shop.orders": "upsert"})
    done = exporter.run()
    assert done.status == 1
    assert "has topic 'shop.orders' with --mode upsert, and not with --mode append" in done.text
    done = reconcile(exporter)
    assert done.status == 2
    assert "has one row for each key" in done.text
