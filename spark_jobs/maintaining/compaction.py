"""Small files of a table put together, and small manifests.

Files have classes of size, each eight times the one below. They are put together when a partition has five of a
class, and with them whatever is smaller; what comes out is mostly of the next class. So a file is rewritten about
once for each class that it passes, and one near the target size never.
"""

from typing import Final

from spark_jobs.maintaining.sql import MaintainedTable, as_map

_MIB: Final = 1024 * 1024
MIN_INPUT_FILES: Final = 5
_FACTOR: Final = 8
_SMALLEST_BYTES: Final = 64 * 1024
_SHARE_OF_TARGET: Final = 0.75
"""As Iceberg has it: a file of three quarters of the target size is large enough."""
_MANIFEST_BYTES: Final = 8 * _MIB
"""Iceberg's own target for manifests, commit.manifest.target-size-bytes."""
_MANY_MANIFESTS: Final = 50


def class_bounds(target_bytes: int) -> list[int]:
    """The bounds of the classes, ascending: a file is of the first class whose bound it is below. Pure."""
    bounds = [int(target_bytes * _SHARE_OF_TARGET)]
    while bounds[0] > _SMALLEST_BYTES:
        bounds.insert(0, bounds[0] // _FACTOR)
    return bounds


def compact_files(table: MaintainedTable, target_bytes: int) -> str | None:
    """Put together what is new and small; what was done, None for nothing. Large files stay as they are.

    Commits as it goes, so that a run that is killed has done a part.
    """
    bound_bytes = _bound_to_rewrite(table, target_bytes)
    if bound_bytes is None:
        return None
    options = {
        "target-file-size-bytes": target_bytes,
        "min-file-size-bytes": bound_bytes,
        "min-input-files": MIN_INPUT_FILES,
        "partial-progress.enabled": "true",
    }
    row = table.call("rewrite_data_files", options=as_map(options))
    failed = row.failed_data_files_count
    return (
        f"{row.rewritten_data_files_count} files put together into {row.added_data_files_count} "
        f"({row.rewritten_bytes_count / _MIB:,.1f} MiB)"
        + (f"; {failed} are as they were, because rewriting them failed" if failed else "")
    )


def _bound_to_rewrite(table: MaintainedTable, target_bytes: int) -> int | None:
    """The bound of the largest class of which a partition has enough files. Spark counts: there may be many."""
    bounds = class_bounds(target_bytes)
    has_partitions = any(row.col_name == "partition" for row in table.rows("DESCRIBE {t}.`data_files`"))
    group = "partition" if has_partitions else "1 AS partition"
    cases = " ".join(f"WHEN file_size_in_bytes < {bound} THEN {bound}" for bound in bounds)
    found = table.rows(
        f"SELECT max(bound) AS bound FROM (SELECT partition, bound, count(*) AS number FROM "
        f"(SELECT {group}, CASE {cases} END AS bound FROM {{t}}.`data_files`) "
        f"WHERE bound IS NOT NULL GROUP BY partition, bound) WHERE number >= {MIN_INPUT_FILES}"
    )
    bound: int | None = found[0].bound
    return bound


def rewrite_manifests(table: MaintainedTable) -> str | None:
    """Put manifests together if there are many more than their size asks for; what was done, None for nothing."""
    found = table.metadata("manifests", "count(*) AS number, coalesce(sum(length), 0) AS bytes")[0]
    wanted = found.bytes // _MANIFEST_BYTES + 1
    if found.number < _MANY_MANIFESTS or found.number < 2 * wanted:
        return None
    row = table.call("rewrite_manifests", use_caching="false")
    return f"{row.rewritten_manifests_count} manifests put together into {row.added_manifests_count}"
