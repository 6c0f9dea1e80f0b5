"""The branch of a table that an export commits to: main, or the one of write-audit-publish (`spark.wap.branch`)."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from kafscale.errors import SettingError
from kafscale.lake.export_state import MAIN_BRANCH

WAP_BRANCH: Final = "spark.wap.branch"


def export_branch(spark: SparkSession) -> str:
    """The branch that the session writes to."""
    return spark.conf.get(WAP_BRANCH, None) or MAIN_BRANCH


@contextlib.contextmanager
def on_main(spark: SparkSession) -> Iterator[None]:
    """Statements within the block are about the main branch.

    Iceberg refuses to stage a snapshot, and SQL would change the other branch, while one is set.
    """
    branch = spark.conf.get(WAP_BRANCH, None)
    if branch is None:
        yield
        return
    spark.conf.unset(WAP_BRANCH)
    try:
        yield
    finally:
        spark.conf.set(WAP_BRANCH, branch)


def view_of(metadata: Any, branch: str) -> tuple[str, Any]:
    """The branch whose history is that of `branch`, and its snapshot (None if it has none).

    One that is not there yet, or that has not moved, is still main. Raises `SettingError` for a tag.
    """
    main = metadata.currentSnapshot()
    reference = metadata.ref(branch)
    if branch == MAIN_BRANCH or reference is None:
        return MAIN_BRANCH, main
    if not reference.isBranch():
        raise SettingError(
            f"--conf {WAP_BRANCH}={branch} is not legal: {branch} is a tag of the table; give a branch"
        )
    snapshot = metadata.snapshot(reference.snapshotId())
    if main is not None and main.snapshotId() == snapshot.snapshotId():
        return MAIN_BRANCH, main
    return branch, snapshot
