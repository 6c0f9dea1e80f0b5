"""A table that is exported again and again keeps few snapshots and few files of metadata, and all of its rows."""

import functools
from collections.abc import Sequence

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from kafscale.lake.iceberg import publish as publishing
from kafscale.lake.iceberg.expiry import expire_old_snapshots, snapshots_to_expire
from kafscale.lake.table_care import Retention
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter

BRIEF = (
    "--table-property", "history.expire.max-snapshot-age-ms=0",
    "--table-property", "history.expire.min-snapshots-to-keep=2",
    "--table-property", "write.metadata.previous-versions-max=2",
    "--table-property", "commit.manifest.min-count-to-merge=3",
)  # fmt: skip


@pytest.fixture(autouse=True)
def expiry_after_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "expire_old_snapshots", functools.partial(expire_old_snapshots, least=1))


def commit(exporter: LakeExporter, writer: TopicWriter, times: int, options: Sequence[str] = ()) -> None:
    for _ in range(times):
        writer.append(0, sent(3, first=len(writer.rows())))
        done = exporter.run(*options)
        assert done.status == 0, done.text


def table_of(catalog: Catalog) -> Table:
    return catalog.load_table(("kafka", "shop_orders"))


def metadata_files(exporter: LakeExporter) -> set[str]:
    return {path.name for path in exporter.folder.rglob("metadata/*")}


def named_by(table: Table) -> set[str]:
    """The files of metadata that the table still names."""
    names = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        names |= {
            snapshot.manifest_list,
            *(one.manifest_path for one in snapshot.manifests(table.io)),
        }
    return {name.rpartition("/")[2] for name in names}


def test_files_of_old_snapshots_and_versions_go(exporter: LakeExporter, writer: TopicWriter) -> None:
    commit(exporter, writer, 7, BRIEF)
    assert len(exporter.read().history) == 2
    assert exporter.stored_rows() == writer.rows()
    assert exporter.state().position(0) == 21
    with exporter.opened_catalog() as catalog:
        table = table_of(catalog)
        assert metadata_files(exporter) == named_by(table)
        assert len(table.metadata.metadata_log) == 2
        current = table.metadata.current_snapshot()
        assert current is not None
        assert len(current.manifests(table.io)) <= 3, "they are merged"


def test_a_tag_keeps_its_snapshot_and_files(exporter: LakeExporter, writer: TopicWriter) -> None:
    commit(exporter, writer, 1, BRIEF)
    with exporter.opened_catalog() as catalog:
        table = table_of(catalog)
        tagged = table.metadata.current_snapshot_id
        assert tagged is not None
        table.manage_snapshots().create_tag(tagged, "audit").commit()
    commit(exporter, writer, 4)
    with exporter.opened_catalog() as catalog:
        table = table_of(catalog)
        assert len(table.metadata.snapshots) == 3
        assert table.scan(snapshot_id=tagged).to_arrow().num_rows == 3
    assert exporter.stored_rows() == writer.rows()


def test_deleted_data_files_go_with_the_last_snapshot(exporter: LakeExporter, writer: TopicWriter) -> None:
    commit(exporter, writer, 2, (*BRIEF, "--table-property", "history.expire.min-snapshots-to-keep=3"))
    before = exporter.files()
    with exporter.opened_catalog() as catalog:
        table_of(catalog).delete("offset < 3")
    commit(exporter, writer, 1)
    assert exporter.files() >= before, "the snapshot before the deletion has them"
    commit(exporter, writer, 1)
    assert len(before - exporter.files()) == 1
    assert exporter.stored_rows() == writer.rows()[3:]


def test_snapshots_stay_where_the_table_sets_no_age(exporter: LakeExporter, writer: TopicWriter) -> None:
    commit(exporter, writer, 1, BRIEF)
    with exporter.opened_catalog() as catalog, table_of(catalog).transaction() as change:
        change.remove_properties("history.expire.max-snapshot-age-ms")
    commit(exporter, writer, 4)
    assert len(exporter.read().history) == 5


def test_young_snapshots_stay_however_many(exporter: LakeExporter, writer: TopicWriter) -> None:
    commit(exporter, writer, 4, ("--table-property", "history.expire.min-snapshots-to-keep=1"))
    assert len(exporter.read().history) == 4
    with exporter.opened_catalog() as catalog:
        metadata = table_of(catalog).metadata
    retention = Retention(max_age_ms=1000, min_snapshots=2)
    assert snapshots_to_expire(metadata, retention, metadata.snapshots[0].timestamp_ms + 1000) == []
    later_ms = metadata.snapshots[-1].timestamp_ms + 1001
    assert snapshots_to_expire(metadata, retention, later_ms) == metadata.snapshots[:2]
