"""Exactly once with pyiceberg: files become visible in one commit together with the export state, or not at all.

The commit says which snapshot it follows, and every commit of an export makes a new one: a late exporter finds
another, and is refused. `Transaction.commit_transaction` is not used: when it is refused, it puts the same files on
top of whatever the table has become. Decision 0080.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID

from kafscale.lake.commit_errors import CommitUnknownError, StaleExportError
from kafscale.lake.export_state import ExportState, encode_state, find_state, property_of
from kafscale.lake.iceberg.expiry import delete_files, delete_old_metadata, expire_old_snapshots
from kafscale.lake.iceberg.lake_errors import CATALOG_ERRORS, lake_errors, reason_of

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_RETRY_SEC: Final = 0.5
_REFUSALS: Final = (
    UnauthorizedError,
    ForbiddenError,
    AuthorizationExpiredError,
    BadRequestError,
    NoSuchTableError,
)
"""Answers of a catalog that certainly has not committed, and that does not another time either."""


def state_of(metadata: TableMetadata, topic: str) -> ExportState:
    """The export state of the topic in this version of a table. Raises `ExportStateError`."""
    return find_state(topic, _ancestors(metadata), metadata.properties, map(_summary, metadata.snapshots))


def _has(metadata: TableMetadata, after: ExportState) -> bool:
    """True if the commit is in the table's history: another exporter's may have followed it already."""
    name, text = property_of(after.topic), encode_state(after)
    return any(summary.get(name) == text for summary in _ancestors(metadata))


def _ancestors(metadata: TableMetadata) -> Iterator[Mapping[str, str]]:
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield _summary(snapshot)
        parent_id = snapshot.parent_snapshot_id
        snapshot = None if parent_id is None else metadata.snapshot_by_id(parent_id)


def _summary(snapshot: Any) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def publish(
    load: Callable[[], Table],
    name: str,
    files: Sequence[DataFile],
    before: ExportState,
    after: ExportState,
    summary: Mapping[str, str] = MappingProxyType({}),
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make the files visible and `after` the export state, if that still is `before`.

    `load`: the table as it is now; `summary`: of the snapshot, besides the state. Raises `StaleExportError`,
    `CommitUnknownError`, and `LakeError` for what is refused.
    """
    problem: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            sleep(_RETRY_SEC * attempt)
        try:
            table = load()
        except CATALOG_ERRORS as unread:
            if problem is None:
                with lake_errors(f"cannot read table {name}"):
                    raise
            logger.warning("the table %s cannot be read after a commit to it: %s", name, reason_of(unread))
            continue
        if attempt and _has(table.metadata, after):
            return
        found = state_of(table.metadata, before.topic)
        if found.commit_id != before.commit_id:
            raise StaleExportError(name, before, found)
        with lake_errors(f"cannot write the manifest of a commit to {name}"):
            requirements, updates, append = _staged(table, files, after, summary)
        problem = _committed(table, requirements, updates, append, name)
        if problem is None:
            return
        logger.warning("a commit to %s did not succeed at once: %s", name, reason_of(problem))
    assert problem is not None, "without one an attempt has succeeded"
    raise CommitUnknownError(name, reason_of(problem)) from problem


def _staged(
    table: Table, files: Sequence[DataFile], after: ExportState, summary: Mapping[str, str]
) -> tuple[Any, Any, Any]:
    """The commit as a catalog takes it: what must be so, and what changes; and who wrote it."""
    name, text = property_of(after.topic), encode_state(after)
    transaction = table.transaction()
    # Merges manifests once there are a hundred, or each commit would read and write a longer list of them.
    append = transaction.update_snapshot(snapshot_properties={**summary, name: text}).merge_append()
    for file in files:
        append.append_data_file(file)
    append.commit()
    transaction.set_properties({name: text})
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    return (*transaction._requirements, uuid), transaction._updates, append


def _committed(table: Table, requirements: Any, updates: Any, append: Any, name: str) -> Exception | None:
    """None if it has been; the problem if it is not, or may not have been: the table tells at the next attempt.

    Two commits of the same files cannot both succeed, because each replaces exactly the snapshot that it follows.
    """
    try:
        response = table.catalog.commit_table(table, requirements, updates)
    except _REFUSALS:
        with lake_errors(f"cannot commit to {name}"):
            raise
    except CATALOG_ERRORS as found:
        problem: Exception = found
        return problem
    current = Table(table.name(), response.metadata, response.metadata_location, table.io, table.catalog)
    _tidy(table, current, append, name)
    return None


def _tidy(before: Table, current: Table, append: Any, name: str) -> None:
    """Delete what the commit does not need, and what the table's properties do not keep. Best-effort.

    A manifest that the commit wrote and merged into another at once is in no snapshot.
    """
    try:
        snapshot, manifests = current.metadata.snapshot_by_id(append.snapshot_id), append._written_manifests
        if snapshot is not None and len(manifests) > 1:
            named = {one.manifest_path for one in snapshot.manifests(current.io)}
            delete_files(current.io, [path for path in manifests if path not in named])
    except CATALOG_ERRORS as problem:
        logger.warning("could not read the manifests of %s: %s", name, reason_of(problem))
    delete_old_metadata(before, current.metadata, name)
    expire_old_snapshots(current, name, time.time_ns() // 1_000_000)
