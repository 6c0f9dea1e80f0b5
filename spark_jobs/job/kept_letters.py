"""Dead letters that come back to the driver beside the rows that are written: nothing is read again for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StructField, StructType

from spark_jobs.decoding.dead_letters import ERROR, IS_KEPT, letter_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLetters:
    """`count`: of the dead letters that were seen, `row_count`: of all records. `rows`: each dead letter once.

    `is_complete`: `rows` has them all. Spark counts twice what it reads twice, as it does after a lost executor.
    """

    count: int
    row_count: int
    rows: Sequence[Any]
    is_complete: bool


class LetterWatch:
    """Watches decoded records go by, in the first action that reads `watched`."""

    def __init__(self, decoded: DataFrame) -> None:
        self._seen = Observation()
        # Times as numbers: Python has none of the year 10000.
        letter = sql.struct(
            *(
                sql.unix_micros(one).alias("timestamp") if name == "timestamp" else one
                for name, one in letter_columns(decoded).items()
            )
        )
        self.watched = decoded.observe(
            self._seen,
            sql.count(ERROR).alias("count"),
            sql.count(sql.lit(1)).alias("rows"),
            sql.collect_list(sql.when(sql.col(IS_KEPT), letter)).alias("kept"),
        )

    def letters(self) -> KeptLetters:
        """Those that went by; to be called after the action."""
        seen = self._seen.get
        # Spark 3.5 and 4.0 bring no rows back, only numbers: the letters are read again.
        kept: list[Row] = seen["kept"] if isinstance(seen["kept"], list) else []
        once = {(one.partition, one.offset): one for one in kept}
        return KeptLetters(
            count=seen["count"],
            row_count=seen["rows"],
            rows=[once[place] for place in sorted(once)],
            is_complete=len(kept) == seen["count"],
        )


def as_data_frame(spark: SparkSession, letters: KeptLetters, schema: StructType) -> DataFrame:
    """The dead letters as rows of their table, whose columns are `schema`."""
    with_numbers = StructType(
        [
            StructField(one.name, LongType() if one.name == "timestamp" else one.dataType, True)
            for one in schema.fields
        ]
    )
    rows = spark.createDataFrame([tuple(one) for one in letters.rows], with_numbers, verifySchema=False)
    return rows.withColumn("timestamp", sql.timestamp_micros("timestamp"))
