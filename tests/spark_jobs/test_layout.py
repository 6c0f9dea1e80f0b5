"""Partitioning and order, from the command line's words to SQL."""

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructField, StructType

from kafscale.errors import SettingError
from spark_jobs.tables.layout import partition_terms, quoted, sort_terms, type_text

COLUMNS = ["key", "timestamp", "value"]


def test_partitioning() -> None:
    terms = ["day(timestamp)", "hours( timestamp )", "bucket(16, key)", "truncate(4,value.name)", "key"]
    assert partition_terms(terms, COLUMNS) == [
        "days(`timestamp`)",
        "hours(`timestamp`)",
        "bucket(16, `key`)",
        "truncate(4, `value`.`name`)",
        "`key`",
    ]


def test_order() -> None:
    terms = ["key", "timestamp DESC nulls last", "bucket(4, key) asc"]
    assert sort_terms(terms, COLUMNS) == ["`key`", "`timestamp` DESC NULLS LAST", "bucket(4, `key`) ASC"]


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        ("week(timestamp)", "each term must be"),
        ("bucket(0, key)", "each term must be"),
        ("key; DROP TABLE x", "each term must be"),
        ("day(time)", "there is no column 'time'; the columns are key, timestamp, value"),
    ],
)
def test_terms_that_are_refused(term: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        partition_terms([term], COLUMNS)
    with pytest.raises(SettingError, match=problem):
        sort_terms([term], COLUMNS)


def test_names_with_anything_in_them_are_quoted() -> None:
    inner = StructType([StructField("a-b", LongType()), StructField("c`d", BinaryType())])
    assert quoted("local.my-db.t") == "`local`.`my-db`.`t`"
    assert type_text(MapType(StringType(), ArrayType(inner))) == (
        "map<string, array<struct<`a-b`: bigint, `c``d`: binary>>>"
    )
