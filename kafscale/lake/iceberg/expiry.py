"""Expiry of a table's old snapshots with pyiceberg, as the table's properties want it, files included.

pyiceberg's own `expire_snapshots` takes snapshots out of the metadata and leaves all of their files. What they alone
had is found here for the usual case, one line of snapshots; where there is more (branches, roll-backs) files are left
to `remove_orphan_files` of Spark.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from kafscale.lake.iceberg.lake_errors import CATALOG_ERRORS, reason_of
from kafscale.lake.table_care import (
    LEAST_TO_EXPIRE,
    RefLimits,
    Retention,
    SnapshotAge,
    expired_ids,
    retention_of,
)

logger = logging.getLogger(__name__)

_MAIN: Final = "main"


def expire_old_snapshots(table: Table, name: str, now_ms: int, least: int = LEAST_TO_EXPIRE) -> int:
    """Expire what the table's properties do not keep, if it is `least` snapshots or more; returns how many.

    Best-effort: failures are logged. What was committed is safe whatever happens here.
    """
    retention = retention_of(table.properties)
    if retention is None:
        return 0
    expired = snapshots_to_expire(table.metadata, retention, now_ms)
    if len(expired) < least:
        return 0
    try:
        files = files_of_expired(table.metadata, expired, table.io)
        ids = [one.snapshot_id for one in expired]
        # A branch that is moved meanwhile could need what is to go.
        unmoved = (
            AssertRefSnapshotId.model_validate(
                {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": one.snapshot_id}
            )
            for ref, one in table.metadata.refs.items()
        )
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        removed = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids})
        response = table.catalog.commit_table(table, (uuid, *unmoved), (removed,))
        delete_files(table.io, files)
        delete_old_metadata(table, response.metadata, name)
    except CATALOG_ERRORS as problem:
        logger.warning("could not expire old snapshots of %s: %s", name, reason_of(problem))
        return 0
    return len(expired)


def delete_old_metadata(table: Table, after: TableMetadata, name: str) -> None:
    """Delete the metadata files that a commit on `table` does not list any more. Best-effort: failures are logged.

    pyiceberg's own transactions do so; commits that are given to the catalog directly do not.
    """
    try:
        table.catalog._delete_old_metadata(table.io, table.metadata, after)
    except CATALOG_ERRORS as problem:
        logger.warning("could not delete old metadata files of %s: %s", name, reason_of(problem))


def snapshots_to_expire(metadata: TableMetadata, retention: Retention, now_ms: int) -> list[Snapshot]:
    """The snapshots that are too old, in their order."""
    snapshots = [
        SnapshotAge(
            snapshot_id=one.snapshot_id, parent_id=one.parent_snapshot_id, timestamp_ms=one.timestamp_ms
        )
        for one in metadata.snapshots
    ]
    refs = [
        RefLimits(
            snapshot_id=one.snapshot_id,
            is_branch=one.snapshot_ref_type is SnapshotRefType.BRANCH,
            max_age_ms=one.max_snapshot_age_ms,
            min_snapshots=one.min_snapshots_to_keep,
        )
        for one in metadata.refs.values()
    ]
    gone = set(expired_ids(snapshots, refs, retention, now_ms))
    return [one for one in metadata.snapshots if one.snapshot_id in gone]


def _ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """The snapshot and its known ancestors, the newest first."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    while snapshot_id is not None and (found := by_id.get(snapshot_id)) is not None:
        yield found
        snapshot_id = found.parent_snapshot_id


def files_of_expired(metadata: TableMetadata, expired: Sequence[Snapshot], io: FileIO) -> list[str]:
    """The files that only the expired snapshots have; none unless all snapshots are one line.

    In one line a manifest or a data file that a snapshot does not have any more is in no later one: what the oldest
    snapshot that stays has is all that must stay.
    """
    line = list(_ancestors(metadata, metadata.current_snapshot_id))
    gone = {one.snapshot_id for one in expired}
    kept = [one for one in line if one.snapshot_id not in gone]
    is_one_line = set(metadata.refs) == {_MAIN} and len(line) == len(metadata.snapshots)
    if not is_one_line or not kept or any(one.snapshot_id in gone for one in line[: len(kept)]):
        return []
    oldest = kept[-1]
    staying = {one.manifest_path for one in oldest.manifests(io)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in expired:
        manifests |= {one.manifest_path: one for one in snapshot.manifests(io)}
    data = list(_deleted_by(metadata, [*expired, oldest], io))
    return [
        *data,
        *(path for path in manifests if path not in staying),
        *(one.manifest_list for one in expired),
    ]


def _deleted_by(metadata: TableMetadata, snapshots: Iterable[Snapshot], io: FileIO) -> Iterator[str]:
    """The data files that these snapshots took out of the table: no snapshot before them remains."""
    for snapshot in snapshots:
        if snapshot.summary is None or snapshot.summary.operation is Operation.APPEND:
            continue
        for manifest in snapshot.manifests(io):
            if manifest.added_snapshot_id != snapshot.snapshot_id or manifest.deleted_files_count == 0:
                continue
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
                if entry.status is ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot.snapshot_id:
                    yield entry.data_file.file_path


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no snapshot names. Best-effort: failures are logged."""
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            logger.debug("%s is gone already", path)
        except CATALOG_ERRORS as problem:
            logger.warning("could not delete %s, which no snapshot has: %s", path, reason_of(problem))
