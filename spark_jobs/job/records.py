"""The records of a batch as Spark reads them: the data source with the planned offsets."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from kafscale.lake.ranges import Ranges, difference
from kafscale.settings.broker import SETTINGS, Settings
from kafscale.settings.stores import StoreSettings
from spark_jobs.job.batch_records import OpenRecords
from spark_jobs.source.columns import spark_schema
from spark_jobs.source.open_source import load_records
from spark_jobs.source.option_rows import EXCEPT_OFFSETS, TASK_BYTES
from spark_jobs.source.row_step import RowStep

_TASK_BYTES: Final = 8 * 1024 * 1024
"""About how much a task reads at least, because each writes a file, or one for each of the table's partitions."""

_STORE_FIELDS: Final = frozenset(one.name for one in dataclasses.fields(StoreSettings))


def store_options(settings: Settings) -> dict[str, str]:
    """The data source's options for these stores. All of them: executors do not have the driver's environment."""
    return {
        row.variable: _as_text(getattr(settings, row.field))
        for row in SETTINGS
        if row.field in _STORE_FIELDS and getattr(settings, row.field) is not None
    }


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def records_of(
    spark: SparkSession, settings: Settings, topic: str, topic_id: Callable[[], UUID]
) -> OpenRecords:
    """Opens the records of a topic, batch by batch; those of another topic of its name are an error.

    `topic_id`: of the topic as it was planned.
    """
    options = store_options(settings)

    def open_records(ranges: Mapping[int, Ranges], step: RowStep | None = None) -> DataFrame:
        if not ranges:
            schema = spark_schema(include_headers=True)
            return spark.createDataFrame([], schema if step is None else step.schema(schema))
        firsts = {str(partition): some[0][0] for partition, some in ranges.items()}
        followings = {str(partition): some[-1][1] for partition, some in ranges.items()}
        between = {
            str(partition): difference(((some[0][0], some[-1][1]),), some)
            for partition, some in ranges.items()
            if len(some) > 1
        }
        return load_records(
            spark,
            {
                **options,
                "assign": json.dumps({topic: sorted(ranges)}),
                "topicIds": json.dumps({topic: str(topic_id())}),
                "startingOffsets": json.dumps({topic: firsts}),
                "endingOffsets": json.dumps({topic: followings}),
                **({EXCEPT_OFFSETS: json.dumps({topic: between})} if between else {}),
                TASK_BYTES: str(_TASK_BYTES),
            },
            step,
        )

    return open_records
