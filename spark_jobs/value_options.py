"""Command line options for the format of a topic's keys and values, shared by all jobs that decode."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from spark_jobs.decoding.options import Framing, KeyFormat, ValueFormat, ValueOptions

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULTS: Final = ValueOptions()


def value_options(command: Command) -> Command:
    """The command gets them as `values`, a `ValueOptions`."""

    @functools.wraps(command)
    def with_values(
        *arguments: Any,
        value_format: str,
        key_format: str,
        schema: str | None,
        schema_file: Sequence[str],
        message: str | None,
        framing: str,
        max_fields: int,
        **parameters: Any,
    ) -> Any:
        values = ValueOptions(
            format=ValueFormat(value_format),
            key_format=KeyFormat(key_format),
            schema=schema,
            schema_files=tuple(schema_file),
            message=message,
            framing=Framing(framing),
            max_fields=max_fields,
        )
        return command(*arguments, values=values, **parameters)

    decorated: Any = with_values
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_OPTIONS: Final = (
    click.option(
        "--value-format",
        type=click.Choice([one.value for one in ValueFormat]),
        default=_DEFAULTS.format.value,
        show_default=True,
        help="The format of values; json-variant makes VARIANTs of JSON, for tables of format version 3. A value "
        "that does not decode goes to the dead-letter table.",
    ),
    click.option(
        "--key-format",
        type=click.Choice([one.value for one in KeyFormat]),
        default=_DEFAULTS.key_format.value,
        show_default=True,
        help="The format of keys.",
    ),
    click.option(
        "--schema",
        metavar="TEXT",
        help="For json: the value's columns, as Spark's DDL (\"id BIGINT, name STRING\") or JSON; without it they "
        "are inferred, and the table grows with them. For avro: the schema's JSON.",
    ),
    click.option(
        "--schema-file",
        multiple=True,
        metavar="FILE|ID=FILE",
        help="For json: a file with such a text. For avro: schema files, the one to read with last, and writers' "
        "schemas as ID=FILE by their ids in Confluent's framing. For protobuf: a descriptor set (protoc "
        "--include_imports --descriptor_set_out). May be repeated.",
    ),
    click.option(
        "--message", metavar="NAME", help="For protobuf: the full name of the message, such as shop.v1.Order."
    ),
    click.option(
        "--framing",
        type=click.Choice([one.value for one in Framing]),
        default=_DEFAULTS.framing.value,
        show_default=True,
        help="For json, avro and protobuf: whether values begin with Confluent's magic byte and schema id; auto "
        "tells by the value.",
    ),
    click.option(
        "--max-fields",
        type=click.IntRange(1, 10_000),
        default=_DEFAULTS.max_fields,
        show_default=True,
        help="For inferred json: the most fields that a value's type may get.",
    ),
)
