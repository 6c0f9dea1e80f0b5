"""A topic that is deleted and created again while it is exported: nothing of the new one gets into the table."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.arrow.split_columns import read_split
from kafscale.lake.iceberg import topic_table
from kafscale.lake.iceberg.publish import publish
from kafscale.lake.iceberg.topic_table import IcebergTable
from tests.lake.support.exporter import LakeExporter, Outcome
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter

SMALL_BATCHES = ("--max-batch-size", "1MiB")


class Recreation:
    """Replaces the topic once, by one with other records at the same offsets."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer
        self.old_id = writer.topic_id()
        self.new_id: Any = None

    def happen(self) -> None:
        if self.new_id is None:
            self.new_id = self._writer.recreate()
            for first in range(0, 40, 10):
                self._writer.append(0, sent(10, "new", first=first, value_bytes=200_000))

    def check(self, done: Outcome) -> None:
        """Both ids and the next step are in what the run printed."""
        assert self.new_id is not None, "the topic was not created again"
        assert done.status == 1, done.text
        assert f"the export is of topic id {self.old_id}" in done.text
        assert f"has topic id {self.new_id} now" in done.text
        assert "nothing of the new topic is in the table: export it into a new table" in done.text


@pytest.fixture
def old_rows(writer: TopicWriter) -> list[dict[str, Any]]:
    """The rows of the first topic: two commits of the size above, at least."""
    for first in range(0, 20, 10):
        writer.append(0, sent(10, "old", first=first, value_bytes=100_000))
    return writer.rows()


@pytest.fixture
def recreation(writer: TopicWriter, old_rows: list[dict[str, Any]]) -> Recreation:
    return Recreation(writer)


def happens_in(recreation: Recreation, work: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
    """`work`, before or after which the topic is created again."""

    def replaced(*arguments: Any, **named: Any) -> Any:
        if first:
            recreation.happen()
        result = work(*arguments, **named)
        recreation.happen()
        return result

    return replaced


def test_recreated_between_two_commits(
    exporter: LakeExporter,
    recreation: Recreation,
    old_rows: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_table, "publish", happens_in(recreation, publish, first=False))
    recreation.check(exporter.run(*SMALL_BATCHES))
    assert exporter.stored_rows() == old_rows[:10]
    assert exporter.state().topic_id == str(recreation.old_id)


def test_recreated_between_plan_and_read(
    exporter: LakeExporter, recreation: Recreation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IcebergTable, "write", happens_in(recreation, IcebergTable.write, first=True))
    recreation.check(exporter.run())
    assert not exporter.stored_rows()


def test_recreated_between_splits_and_read(
    exporter: LakeExporter, recreation: Recreation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of the new topic lie under the same keys, of other sizes; the run has planned the old ones."""
    monkeypatch.setattr(
        "kafscale.lake.iceberg.records.read_split", happens_in(recreation, read_split, first=True)
    )
    recreation.check(exporter.run())
    assert not exporter.stored_rows()


def test_recreated_after_dead_letters_of_the_old_topic(
    exporter: LakeExporter, writer: TopicWriter, old_rows: list[dict[str, Any]]
) -> None:
    """They would be taken for those of the new topic at the same offsets."""
    strings = ("--value-format", "string", "--dead-letter-table", "kafka.letters")
    writer.append(0, [*sent(1), Sent(value=b"\xff")])
    exporter.export(*strings)
    writer.recreate()
    writer.append(0, sent(30, "new"))
    done = exporter.run(*strings, "--table", "kafka.again")
    assert done.status == 1
    assert "local.kafka.letters has an earlier topic of the name 'shop.orders'" in done.text
