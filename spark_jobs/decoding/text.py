"""Text in UTF-8: a column is checked at once, and value by value only if something in it is no text."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding.columns import DecodedColumn

NOT_UTF8 = "is not UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Text. `name`: of the column, for reasons."""

    name: str = "value"

    @property
    def value_type(self) -> st.DataType:
        """String."""
        return st.StringType()

    def open(self) -> "TextFormat":
        """Nothing has to be prepared."""
        return self

    def decode(self, column: pa.Array) -> DecodedColumn:
        """See `ColumnDecoder`."""
        errors: list[str | None] = [None] * len(column)
        try:
            return DecodedColumn(values=column.cast(pa.string()), errors=errors)
        except pa.ArrowInvalid:
            pass  # something is no text: look for it
        values = column.to_pylist()
        for row, data in enumerate(values):
            if data is not None and not _is_text(data):
                values[row], errors[row] = None, f"{self.name}: {NOT_UTF8}"
        return DecodedColumn(values=pa.array(values, pa.binary()).cast(pa.string()), errors=errors)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
