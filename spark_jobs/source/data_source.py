"""The data source `kafscale` as Spark's Python Data Source API wants it."""

import os

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kafscale.lake.offset_points import SourceOptionError
from spark_jobs.source.batch_reader import BatchReader
from spark_jobs.source.columns import spark_schema
from spark_jobs.source.options import SourceOptions, parse_options, settings_of
from spark_jobs.source.python_worker import spare_work_between_tasks
from spark_jobs.source.stream_reader import StreamReader

NAME = "kafscale"


class KafscaleDataSource(DataSource):
    """Topics read from published segments. The options: docs/spark-source.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source. Raises `SourceOptionError`, `SettingError`."""
        spare_work_between_tasks()
        settings_of(self.options, os.environ)
        return spark_schema(parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`. Raises `SourceOptionError`, `SettingError`."""
        spare_work_between_tasks()
        return BatchReader(settings_of(self.options, os.environ), self._parsed(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """For `spark.readStream`. Raises `SourceOptionError`, `SettingError`."""
        return StreamReader(settings_of(self.options, os.environ), self._parsed(schema))

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = parse_options(self.options)
        columns = spark_schema(options.include_headers)
        if [(field.name, field.dataType) for field in schema] != [
            (field.name, field.dataType) for field in columns
        ]:
            raise SourceOptionError(
                f"the schema {schema.simpleString()} is not legal: the columns are always "
                f"{columns.simpleString()}; leave schema() out and select from them"
            )
        return options


def register(spark: SparkSession) -> None:
    """Register `format("kafscale")` with the session, also if Spark does not find it by itself."""
    try:
        spark.dataSource.register(KafscaleDataSource)
    except AnalysisException as problem:
        # Spark 4.0 refuses a name that it has found by itself; 4.1 replaces it.
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
