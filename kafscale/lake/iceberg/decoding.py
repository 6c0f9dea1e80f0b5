"""Divides records into rows, with keys and values as the table has them, and dead letters. Pure."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from kafscale.arrow.columns import TIME_DOES_NOT_FIT
from kafscale.lake.iceberg.columns import ERROR, Formats, TextFormat

pc: Any = pyarrow.compute  # its functions are made when it is loaded

_NOT_UTF8 = "is not UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of the table, and rows of the dead-letter table: None if there are none."""

    rows: pa.Table
    dead_letters: pa.Table | None = None


def decode(records: pa.RecordBatch, formats: Formats) -> Decoded:
    """The records with their keys and values as text, where the formats say so.

    What is not UTF-8 becomes a dead letter, with its bytes and the reason: the value's, if both do not decode. So
    does a record whose time does not fit its column.
    """
    table = pa.Table.from_batches([records])
    errors = pa.nulls(table.num_rows, pa.string())
    times = records.column("timestamp")
    if times.null_count:
        errors = pc.if_else(pc.is_null(times), pa.scalar(TIME_DOES_NOT_FIT), errors)
    decoded = table
    # The key first: one reason is enough, and the value's replaces it.
    for name, text_format in (("key", formats.key), ("value", formats.value)):
        if text_format is TextFormat.STRING:
            text, broken = _as_text(table.column(name))
            decoded = decoded.set_column(decoded.schema.get_field_index(name), name, text)
            if broken is not None:
                errors = pc.if_else(broken, pa.scalar(f"{name}: {_NOT_UTF8}"), errors)
    if errors.null_count == len(errors):
        return Decoded(rows=decoded)
    is_dead = pc.is_valid(errors)
    return Decoded(
        rows=decoded.filter(pc.invert(is_dead)),
        dead_letters=table.append_column(ERROR, errors).filter(is_dead),
    )


def _as_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """The column as text, with null for what is not UTF-8; and where that is, None if it is nowhere."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        texts = [_text_or_none(data) for data in column.to_pylist()]
    text = pa.array(texts, pa.string())
    broken = pc.and_(pc.is_valid(column.combine_chunks()), pc.is_null(text))
    return pa.chunked_array([text]), broken


def _text_or_none(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
