"""Command line options that divide one topic into several tables."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from kafscale.errors import SettingError
from kafscale.lake.routes import UnknownRoute, parse_routes

Command = TypeVar("Command", bound=Callable[..., Any])


def route_options(command: Command) -> Command:
    """The command gets them as `routes`, a `Routes`, or None."""

    @functools.wraps(command)
    def with_routes(
        *arguments: Any,
        route_by: str | None,
        route: Sequence[str],
        max_route_tables: int,
        unknown_route: str,
        **parameters: Any,
    ) -> Any:
        try:
            routes = parse_routes(route_by, route, max_route_tables, UnknownRoute(unknown_route))
        except SettingError as problem:
            raise click.UsageError(str(problem)) from None
        return command(*arguments, routes=routes, **parameters)

    decorated: Any = with_routes
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_OPTIONS: Final = (
    click.option(
        "--route-by",
        metavar="KEY",
        help="Divide the topic into tables by the type of values (type: the name in the registry's schema), by "
        "header:NAME, or by field:PATH of the value.",
    ),
    click.option(
        "--route",
        multiple=True,
        metavar="ROUTE=TABLE",
        help="The table of a route; *=TABLE with {route} in it names those of all others. May be repeated.",
    ),
    click.option(
        "--max-route-tables",
        type=click.IntRange(1, 1_000),
        default=50,
        show_default=True,
        help="How many tables a topic may be divided into.",
    ),
    click.option(
        "--unknown-route",
        type=click.Choice([one.value for one in UnknownRoute]),
        default=UnknownRoute.DEAD_LETTER.value,
        show_default=True,
        help="Where records go whose route names no table: to the dead letters, or to --table.",
    ),
)
