"""Parses the type of JSON values: Spark DDL, or Spark's own JSON for types."""

import json

from pyspark.errors import PySparkException
from pyspark.sql import types as st

from kafscale.errors import SettingError
from spark_jobs.decoding.types import require_usable

_LEGAL = "Spark DDL such as 'id bigint, tags array<string>', or a type as Spark writes it in JSON"


def read_type(text: str, source: str) -> st.DataType:
    """The type in `text`. `source` names it in errors. DDL needs an active Spark session.

    Raises `SettingError`.
    """
    data_type = _from_json(text, source) if text.lstrip().startswith(("{", '"')) else _from_ddl(text, source)
    require_usable(data_type, source)
    return data_type


def _from_json(text: str, source: str) -> st.DataType:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(
            f"{source}: line {error.lineno}, column {error.colno}: {error.msg}; legal is {_LEGAL}"
        ) from None
    try:
        return st._parse_datatype_json_value(found)
    except (PySparkException, KeyError, TypeError, AttributeError, ValueError) as error:
        raise SettingError(f"{source}: {_message_of(error)}; legal is {_LEGAL}") from None


def _from_ddl(text: str, source: str) -> st.DataType:
    if not text.strip():
        raise SettingError(f"{source}: is empty; legal is {_LEGAL}")
    try:
        return st._parse_datatype_string(text)
    except (PySparkException, RecursionError) as error:
        raise SettingError(f"{source}: {_message_of(error)}; legal is {_LEGAL}") from None


def _message_of(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
