"""Each record once, whatever is killed, refused or lost on the way, and whoever else writes to the table."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from kafscale.lake.commit_errors import ExportMismatchError
from kafscale.lake.export_lease import hold_export
from kafscale.lake.export_state import ExportState
from kafscale.lake.iceberg import publish as publishing
from kafscale.lake.iceberg import topic_table
from kafscale.lake.iceberg.publish import publish
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.read_back import open_table
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter

Commit = Callable[..., Any]
PUBLISH = "kafscale.lake.iceberg.topic_table.publish"


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_RETRY_SEC", 0.0)


def wrap_commits(monkeypatch: pytest.MonkeyPatch, around: Callable[[Commit], Commit]) -> None:
    """Let `around` stand in for the catalog's commits of snapshots."""
    commit = SqlCatalog.commit_table
    replaced = around(commit)

    def chosen(catalog: Any, table: Any, requirements: Any, updates: Any) -> Any:
        is_snapshot = any(type(one).__name__ == "AddSnapshotUpdate" for one in updates)
        return (replaced if is_snapshot else commit)(catalog, table, requirements, updates)

    monkeypatch.setattr(SqlCatalog, "commit_table", chosen)


def test_killed_before_the_commit_nothing_is_visible(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))
    exporter.export()
    writer.append(0, sent(5, first=10))
    with monkeypatch.context() as patch:
        patch.setattr(PUBLISH, lambda *_: (_ for _ in ()).throw(KilledError))
        with pytest.raises(KilledError):
            exporter.run()
    assert len(exporter.read().rows) == 10
    assert len(exporter.files()) == 2, "the rows were not even written"
    assert len(exporter.export().history) == 2
    assert exporter.stored_rows() == writer.rows()


def test_killed_after_the_commit_nothing_is_repeated(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))

    def killed(*arguments: Any) -> None:
        publish(*arguments)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(PUBLISH, killed)
        with pytest.raises(KilledError):
            exporter.run()
    writer.append(1, sent(3))
    assert len(exporter.export().history) == 2
    assert exporter.stored_rows() == writer.rows()


def test_killed_between_the_tables_no_record_is_in_both(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, [Sent(value=b"good"), Sent(value=b"\xff"), Sent(value=b"better")])
    with monkeypatch.context() as patch:

        def killed(load: Any, name: str, *arguments: Any) -> None:
            if not name.endswith("_dead_letters"):
                raise KilledError
            publish(load, name, *arguments)

        patch.setattr(PUBLISH, killed)
        with pytest.raises(KilledError):
            exporter.run("--value-format", "string")
    assert not exporter.read().rows
    assert [row["offset"] for row in exporter.dead_letters()] == [1]
    writer.append(0, [Sent(value=b"\xfe"), Sent(value=b"best")])
    exporter.export("--value-format", "string")
    assert [row["offset"] for row in exporter.stored_rows()] == [0, 2, 4]
    assert [row["offset"] for row in exporter.dead_letters()] == [1, 3]


def test_a_commit_whose_answer_is_lost_is_found(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))

    def around(commit: Commit) -> Commit:
        def lost(*arguments: Any) -> Any:
            commit(*arguments)
            raise ConnectionResetError("the answer is lost")

        return lost

    wrap_commits(monkeypatch, around)
    assert len(exporter.export().history) == 1
    assert exporter.stored_rows() == writer.rows()


def test_a_commit_that_failed_is_tried_again(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))
    failures = [OSError("no answer"), CommitFailedException("changed meanwhile")]

    def around(commit: Commit) -> Commit:
        def unreliable(*arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return commit(*arguments)

        return unreliable

    wrap_commits(monkeypatch, around)
    assert len(exporter.export().history) == 1
    assert exporter.stored_rows() == writer.rows()


def test_a_commit_that_never_answers_is_unknown_not_failed(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))

    def around(_: Commit) -> Commit:
        def silent(*_: Any) -> Any:
            raise TimeoutError("no answer")

        return silent

    with monkeypatch.context() as patch:
        wrap_commits(patch, around)
        done = exporter.run()
    assert done.status == 1
    assert "it is not known whether the last commit to local.kafka.shop_orders happened" in done.text
    assert len(exporter.export().history) == 1
    assert exporter.stored_rows() == writer.rows()


def test_another_writers_commit_in_between_is_no_obstacle(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))
    exporter.export()
    writer.append(0, sent(5, first=10))
    others = [1]

    def around(commit: Commit) -> Commit:
        def raced(*arguments: Any) -> Any:
            if others:
                others.pop()
                with open_table(exporter.catalog, exporter.table) as table:
                    rows = table.scan(row_filter="offset = 3").to_arrow()
                    table.append(rows.set_column(4, rows.schema.field(4), [[1_000_000]]))
            return commit(*arguments)

        return raced

    wrap_commits(monkeypatch, around)
    written = exporter.export()
    assert len(written.history) == 3
    assert [row["offset"] for row in exporter.stored_rows()] == [*range(15), 1_000_000]


def test_another_exporters_commit_in_between_is_final(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was paused for so long that the second got its lease."""
    writer.append(0, sent(10))

    def paused(load: Any, name: str, files: Any, before: Any, after: Any, _: Any) -> None:
        # The same batch, planned from the same state, by another: its commit comes first.
        twin = after.after(commit_id="0" * 32, topic_id=after.topic_id, starts={}, exported={}, gaps={})
        publish(load, name, files, before, twin)
        publish(load, name, files, before, after)

    monkeypatch.setattr(PUBLISH, paused)
    done = exporter.run()
    assert done.status == 1
    assert "another exporter of topic 'shop.orders' has committed" in done.text
    assert exporter.stored_rows() == writer.rows()


def test_a_lost_commit_that_another_followed_is_found(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, sent(10))
    followed: list[ExportState] = []

    def around(commit: Commit) -> Commit:
        def lost(*arguments: Any) -> Any:
            answer = commit(*arguments)
            if followed:
                return answer
            followed.append(exporter.state())
            twin = replace(followed[0], commit_id="0" * 32)
            catalog, table, *_ = arguments
            publish(lambda: catalog.load_table(table.name()), "t", [], followed[0], twin)
            raise ConnectionResetError("the answer is lost")

        return lost

    wrap_commits(monkeypatch, around)
    assert len(exporter.export().history) == 2
    assert exporter.stored_rows() == writer.rows()


def test_a_failed_write_leaves_no_files(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(0, [Sent(value=b"good"), Sent(value=b"\xff")])
    monkeypatch.setattr(
        topic_table.IcebergTable, "_compare", lambda *_: (_ for _ in ()).throw(ExportMismatchError("t", 1, 2))
    )
    done = exporter.run("--value-format", "string")
    assert done.status == 1
    assert "1 records were brought of topic 't', which has 2 of them" in done.text
    assert not exporter.files()
    assert not exporter.read().rows


def test_a_late_commit_of_a_replaced_exporter_is_refused(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past every check of its own: the catalog's comparison is the last one."""
    writer.append(0, sent(10))
    late: list[Any] = []

    def around(commit: Commit) -> Commit:
        def held_up(*arguments: Any) -> Any:
            if not late:
                late.append(arguments)
                raise KilledError
            return commit(*arguments)

        return held_up

    wrap_commits(monkeypatch, around)
    with pytest.raises(KilledError):
        exporter.run()
    exporter.export()
    with exporter.opened_catalog() as catalog, pytest.raises(CommitFailedException):
        catalog.commit_table(*late[0][1:])
    assert exporter.stored_rows() == writer.rows()


def test_a_second_exporter_is_refused_by_name(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(10))
    with hold_export(writer.settings, writer.topic, "spark-host/4711"):
        done = exporter.run()
    assert done.status == 1
    assert "topic 'shop.orders' is being exported by spark-host/4711 since" in done.text
    assert not exporter.exists()


def test_a_table_that_was_rolled_back_gets_the_rest_again(
    exporter: LakeExporter, writer: TopicWriter
) -> None:
    writer.append(0, sent(10))
    first = exporter.export().history[0].snapshot_id
    writer.append(0, sent(5, first=10))
    exporter.export()
    with exporter.opened_catalog() as catalog:
        table = catalog.load_table(("kafka", "shop_orders"))
        table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert len(exporter.read().rows) == 10
    exporter.export()
    assert exporter.stored_rows() == writer.rows()
