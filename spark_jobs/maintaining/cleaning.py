"""Old snapshots, and files that no snapshot names, are removed."""

from typing import Final

from kafscale.lake.table_care import (
    MAX_SNAPSHOT_AGE_MS,
    MIN_SNAPSHOTS,
    RefLimits,
    Retention,
    SnapshotAge,
    expired_ids,
)
from spark_jobs.maintaining.sql import MaintainedTable, as_timestamp
from spark_jobs.tables import jvm
from spark_jobs.tables.publish import keep_states

_DEFAULT_AGE_MS: Final = 5 * 86_400_000
"""Iceberg's own, for a table that does not say."""
_IDS_A_CALL: Final = 2_000


def expire_snapshots(table: MaintainedTable, age_ms: int | None, now_ms: int) -> str | None:
    """Expire snapshots that are older than `age_ms`, or than the table's properties say; None for nothing.

    With an age all go but the newest of each branch. What a running export may have staged stays for a day.
    """
    properties = jvm.as_mapping(jvm.load_table(table.spark, table.name).properties())
    retention = Retention(
        max_age_ms=int(properties.get(MAX_SNAPSHOT_AGE_MS, _DEFAULT_AGE_MS)) if age_ms is None else age_ms,
        min_snapshots=int(properties.get(MIN_SNAPSHOTS, 1)) if age_ms is None else 1,
    )
    ids = expired_ids(_snapshots(table), _refs(table), retention, now_ms)
    if not ids:
        return None
    keep_states(table.spark, table.name)
    data = metadata = 0
    for start in range(0, len(ids), _IDS_A_CALL):
        # The ages are decided here: a time that nothing is older than leaves the procedure with the list.
        listed = ", ".join(f"{one}L" for one in ids[start : start + _IDS_A_CALL])
        row = table.call("expire_snapshots", older_than=as_timestamp(0), snapshot_ids=f"array({listed})")
        data += row.deleted_data_files_count + row.deleted_position_delete_files_count
        metadata += row.deleted_manifest_files_count + row.deleted_manifest_lists_count
    return f"{len(ids)} snapshots expired, with {data} data files and {metadata} files of metadata"


def _snapshots(table: MaintainedTable) -> list[SnapshotAge]:
    columns = "snapshot_id, parent_id, unix_millis(committed_at) AS at_ms"
    rows = table.metadata("snapshots", columns)
    return [
        SnapshotAge(snapshot_id=row.snapshot_id, parent_id=row.parent_id, timestamp_ms=row.at_ms)
        for row in rows
    ]


def _refs(table: MaintainedTable) -> list[RefLimits]:
    rows = table.metadata("refs", "*")
    return [
        RefLimits(
            snapshot_id=row.snapshot_id,
            is_branch=row.type == "BRANCH",
            max_age_ms=row.max_snapshot_age_in_ms,
            min_snapshots=row.min_snapshots_to_keep,
        )
        for row in rows
    ]


def remove_orphans(table: MaintainedTable, age_ms: int, now_ms: int) -> str | None:
    """Remove files in the table's folder that no snapshot names and that are older; None for nothing.

    Younger ones may be of a batch that is being written.
    """
    older_than = as_timestamp(now_ms - age_ms)
    found = table.call_rows("remove_orphan_files", older_than=older_than, prefix_listing="true").count()
    return f"{found} files that no snapshot names removed" if found else None
