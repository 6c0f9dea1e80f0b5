"""Options of `kafscale export` and `kafscale reconcile` that say which topic and which tables are meant."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--to",
        required=True,
        metavar="WAREHOUSE",
        help="Where the tables are: a folder, which has its catalog in catalog.db; s3://bucket/path with a catalog's "
        "--catalog-property uri=...; http(s):// of a REST catalog; catalog:NAME of pyiceberg's configuration.",
    ),
    click.option(
        "--table",
        metavar="NAMESPACE.NAME",
        show_default="kafka. and the topic's name, in which dots become _",
        help="The table. An export creates it if it is missing.",
    ),
    click.option(
        "--dead-letter-table",
        metavar="NAMESPACE.NAME",
        show_default="the table's name and _dead_letters",
        help="The table for keys and values that are not UTF-8, with --key-format or --value-format string.",
    ),
    click.option(
        "--catalog",
        default="local",
        metavar="NAME",
        help="The catalog's name, the first part of the table's full name, as Spark and `kafscale exports` have it. "
        "A database keeps its tables under it.",
    ),
    click.option(
        "--catalog-property",
        "catalog_properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="A property of the catalog as pyiceberg's documentation names it, such as uri=postgresql+psycopg2://... "
        "A value env:VARIABLE is taken from the environment. May be repeated.",
    ),
)


def table_options(command: Command, *, requires_topic: bool = True) -> Command:
    """The command gets topic, to, table, dead_letter_table, catalog and catalog_properties.

    `topic` may be None unless it is required.
    """
    decorated: Any = command
    for option in reversed((click.argument("topic", required=requires_topic), *_OPTIONS)):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
