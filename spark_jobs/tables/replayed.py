"""The end of a replay: dead letters that a table has as rows are deleted from the dead-letter table."""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from kafscale.lake.export_state import ExportStateError, decode_state
from kafscale.lake.export_state import property_of as state_property
from kafscale.lake.ranges import Ranges
from kafscale.lake.replay_state import ReplayState, decode_replay, property_of
from spark_jobs.tables import jvm
from spark_jobs.tables.iceberg_table import schema_of_table, set_property
from spark_jobs.tables.layout import quoted

logger = logging.getLogger(__name__)

_VIEW = "kafscale_replayed"


def complete_replay(spark: SparkSession, table: str, topic: str) -> None:
    """Finish what a replay has begun: its rows are in the table, so its dead letters go.

    Does nothing if there is no such table or no replay. Raises `ReplayStateError`, and Spark's errors.
    """
    if schema_of_table(spark, table) is None:
        return
    metadata = jvm.load_table(spark, table).operations().current()
    text = jvm.as_mapping(metadata.properties()).get(property_of(topic))
    if text is None:
        return
    state = decode_replay(topic, text)
    if _was_rolled_back(metadata, topic, state):
        logger.warning("%s was rolled back behind a replay of topic %s: its dead letters stay", table, topic)
    elif schema_of_table(spark, state.dead_letter_table) is not None:
        _delete(spark, state.dead_letter_table, topic, state.offsets)
    set_property(spark, table, property_of(topic), None)


def _was_rolled_back(metadata: Any, topic: str, state: ReplayState) -> bool:
    """True if the rows are gone from the table: its snapshots go back, its properties do not."""
    if _is_among(jvm.ancestor_summaries(metadata, metadata.currentSnapshot()), topic, state.commit_id):
        return False
    # A snapshot that has expired is in neither; the table did not go back then.
    return _is_among(jvm.all_summaries(metadata), topic, state.commit_id)


def _is_among(summaries: Any, topic: str, commit_id: str) -> bool:
    name = state_property(topic)
    for summary in summaries:
        if name in summary:
            try:
                if decode_state(topic, summary[name]).commit_id == commit_id:
                    return True
            except ExportStateError:
                continue
    return False


def _delete(spark: SparkSession, dead_letter_table: str, topic: str, offsets: Mapping[int, Ranges]) -> None:
    rows = [(partition, *one) for partition, ranges in offsets.items() for one in ranges]
    if not rows:
        return
    schema = "partition INT, first BIGINT, following BIGINT"
    spark.createDataFrame(rows, schema).createOrReplaceTempView(_VIEW)
    try:
        spark.sql(
            f"MERGE INTO {quoted(dead_letter_table)} AS letters USING {_VIEW} AS replayed "
            "ON letters.topic = :topic AND letters.partition = replayed.partition "
            "AND letters.offset >= replayed.first AND letters.offset < replayed.following "
            "WHEN MATCHED THEN DELETE",
            args={"topic": topic},
        )
    finally:
        spark.catalog.dropTempView(_VIEW)
    spark.catalog.refreshTable(quoted(dead_letter_table))
