"""Checks the options of values before there are any."""

from pyspark.sql import SparkSession

from spark_jobs.decoding.decoder import open_decoder
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.source.columns import spark_schema


def check_values(spark: SparkSession, options: ValueOptions) -> None:
    """Raise `SettingError` for options that do not belong together, and for schemas that cannot be used."""
    # Nothing, as far as Spark's optimizer knows: no task looks at it.
    nothing = spark.createDataFrame([], spark_schema(include_headers=True)).limit(0)
    open_decoder(options, spark, nothing, None)
