"""Lets Spark find `format("kafscale")`: it looks for packages named `pyspark_...` with a `DefaultSource`."""

from spark_jobs.source.data_source import KafscaleDataSource as DefaultSource

__all__ = ["DefaultSource"]
