"""Opens a topic's records with the data source that Spark has: `format("kafscale")`, or what stands in for it."""

from collections.abc import Mapping

import pyspark
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.source.row_step import RowStep
from spark_jobs.spark_lines import line_of


def register_source(spark: SparkSession) -> None:
    """Register unless Spark has found it by itself or it is registered: a second time Spark would warn.

    Does nothing in a Spark without Python data sources.
    """
    if not line_of(pyspark.__version__).has_data_sources:
        return
    from spark_jobs.source.data_source import KafscaleDataSource, register

    sources = spark._jsparkSession.sessionState().dataSourceManager()
    if not sources.dataSourceExists(KafscaleDataSource.name()):
        register(spark)


def load_records(spark: SparkSession, options: Mapping[str, str], step: RowStep | None = None) -> DataFrame:
    """The records of a batch; the options are those of docs/spark-source.md. Raises what reading them raises.

    `step`: what each task does with its rows.
    """
    if not line_of(pyspark.__version__).has_data_sources:
        from spark_jobs.source.planned_records import planned_records

        return planned_records(spark, options, step)
    if step is None:
        return spark.read.format("kafscale").options(**options).load()
    from spark_jobs.source.stepped_source import load_stepped

    return load_stepped(spark, options, step)
