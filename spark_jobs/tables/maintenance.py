"""Maintenance of a table after an export: compaction of small files and expiry of old snapshots."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from spark_jobs.tables.layout import quoted

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The maintenance to do after an export; None: none of the kind.

    `expire_older_than_sec`: the least age of a snapshot that expires; the newest one always stays.
    """

    compacts: bool = False
    target_file_bytes: int = 512 * _MIB
    expire_older_than_sec: int | None = None

    @property
    def is_wanted(self) -> bool:
        """True if there is something to do, also for a table that nothing was exported into."""
        return self.compacts or self.expire_older_than_sec is not None


def maintain(spark: SparkSession, table: str, wanted: Maintenance) -> list[str]:
    """Do it; returns a line for each step. Raises Spark's errors: the exported rows are safe all the same."""
    catalog, _, rest = table.partition(".")
    name = quoted(rest)
    done = []
    if wanted.compacts:
        row = spark.sql(
            f"CALL {quoted(catalog)}.system.rewrite_data_files(table => '{name}', options => map("
            f"'target-file-size-bytes', '{wanted.target_file_bytes}', 'partial-progress.enabled', 'true'))"
        ).first()
        assert row is not None, "the procedure gives a row"
        done.append(
            f"{table}: {row.rewritten_data_files_count} files put together into {row.added_data_files_count}"
        )
    if wanted.expire_older_than_sec is not None:
        older_than = datetime.now(UTC) - timedelta(seconds=wanted.expire_older_than_sec)
        row = spark.sql(
            f"CALL {quoted(catalog)}.system.expire_snapshots(table => '{name}', older_than => "
            f"TIMESTAMP '{older_than:%Y-%m-%d %H:%M:%S.%f} UTC', retain_last => 1)"
        ).first()
        assert row is not None, "the procedure gives a row"
        done.append(
            f"{table}: snapshots older than {wanted.expire_older_than_sec} s expired, "
            f"{row.deleted_data_files_count} data files removed"
        )
    return done
