"""Expiry of old snapshots by the exporter itself, as the table's properties want it, without a Spark job."""

import logging
import time
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kafscale.lake.table_care import LEAST_TO_EXPIRE, retention_of
from spark_jobs.tables import jvm

logger = logging.getLogger(__name__)


def expire_old_snapshots(spark: SparkSession, table_name: str, least: int = LEAST_TO_EXPIRE) -> bool:
    """Expire what the table's properties do not keep, with its files, once it is `least` snapshots or more.

    Best-effort: what Iceberg or the catalog refuses is logged. What was committed is safe whatever happens here.
    """
    try:
        table = jvm.load_table(spark, table_name)
        if not _has_old_ones(table, least):
            return False
        # Iceberg reads the same properties.
        table.expireSnapshots().commit()
    except Py4JError as problem:
        if not jvm.java_exceptions(problem):
            raise
        logger.warning("could not expire old snapshots of %s: %s", table_name, jvm.java_exceptions(problem))
        return False
    return True


def _has_old_ones(table: Any, least: int) -> bool:
    """By their number and the age of one, which does not take longer with more of them."""
    retention = retention_of(jvm.as_mapping(table.properties()))
    if retention is None:
        return False
    # In the order in which they were added.
    snapshots = list_of(table.snapshots())
    if len(snapshots) - retention.min_snapshots < least:
        return False
    oldest_ms = time.time_ns() // 1_000_000 - retention.max_age_ms
    return bool(snapshots[least - 1].timestampMillis() < oldest_ms)


def list_of(snapshots: Any) -> Any:
    """Iceberg's snapshots as a sequence. It has them as a list; anything else is copied."""
    return snapshots if hasattr(snapshots, "__getitem__") else list(snapshots)
