"""The columns of a topic's records: names, order and types are those of Spark's own Kafka source.

`timestamp` is an instant, in microseconds of UTC; `headers` is null for a record without any.
"""

from functools import cache

import pyarrow as pa

ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_HEADERS = pa.list_(pa.field("element", ARROW_HEADER))
ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")

_COLUMNS = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", ARROW_TIMESTAMP),
    ("timestampType", pa.int32()),
)


TIME_DOES_NOT_FIT = "timestamp: has more milliseconds than a column of microseconds can hold"
"""Why a record is a dead letter in exports; its column `timestamp` is null, which no other's is."""


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    """The schema of the record batches; all columns are nullable."""
    return pa.schema([*_COLUMNS, *((("headers", ARROW_HEADERS),) if include_headers else ())])
