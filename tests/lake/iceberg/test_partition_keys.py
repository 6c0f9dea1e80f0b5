"""Partitions of rows, held against Iceberg's own transforms of single values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import BinaryType, IntegerType, LongType, StringType, TimestamptzType

from kafscale.lake.iceberg.columns import Formats, row_schema
from kafscale.lake.iceberg.partition_keys import divide
from kafscale.lake.iceberg.tables import partition_spec

TERMS = [
    "year(timestamp)",
    "month(timestamp)",
    "day(timestamp)",
    "hour(timestamp)",
    "bucket(7, timestamp)",
    "timestamp",
    "bucket(5, key)",
    "truncate(3, key)",
    "truncate(10, offset)",
    "bucket(4, partition)",
    "topic",
]
TYPES = {
    "timestamp": TimestamptzType(),
    "key": BinaryType(),
    "offset": LongType(),
    "partition": IntegerType(),
    "topic": StringType(),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
times = st.none() | st.integers(-(2**45), 2**45).map(lambda milliseconds: milliseconds * 1000)


@given(
    st.lists(
        st.tuples(times, st.none() | st.binary(max_size=5), st.integers(0, 2**40)), min_size=1, max_size=30
    ),
    st.sampled_from(TERMS),
)
def test_each_row_is_where_its_value_belongs(rows: list[tuple[Any, Any, int]], term: str) -> None:
    schema = row_schema(Formats())
    spec = partition_spec([term], schema)
    table = pa.table(
        {
            "timestamp": pa.array([row[0] for row in rows], pa.timestamp("us", tz="UTC")),
            "key": pa.array([row[1] for row in rows], pa.large_binary()),
            "offset": pa.array([row[2] for row in rows], pa.int64()),
            "partition": pa.array([row[2] % 3 for row in rows], pa.int32()),
            "topic": pa.array(["orders"] * len(rows), pa.large_string()),
        }
    )
    (part,) = spec.fields
    name = str(schema.find_column_name(part.source_id))
    transform = part.transform.transform(TYPES[name])
    found = 0
    for key, of_key in divide(table, spec, schema):
        found += of_key.num_rows
        assert key.to_path().startswith(f"{part.name}=")
        for value in of_key.column(name).to_pylist():
            stored = (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
            assert key.values[0] == transform(stored), (value, term)
    assert found == len(rows)
