"""Routes of a topic into several tables: what a record's route is, and which table it names. Pure.

The table of the topic remembers every table that its records went to, in a property: after a crash the next run has
to look into all of them (decision 0086).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.table_names import parse_table_name

VERSION: Final = 1
PREFIX: Final = "kafscale.routes."
ANY: Final = "*"
MAX_ROUTES: Final = 1_000
_PLACE: Final = "{route}"
_MAX_ROUTE_CHARACTERS: Final = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LEGAL_KEY: Final = "type, header:NAME, or field:PATH, such as field:payload.kind"


class RouteKind(StrEnum):
    """The kinds of routes: by the type of the value by its schema, a header, or a field of the value."""

    TYPE = "type"
    HEADER = "header"
    FIELD = "field"


class UnknownRoute(StrEnum):
    """Where records go whose route names no table."""

    DEAD_LETTER = "dead-letter"
    TABLE = "table"


class RouteStateError(KafscaleError):
    """The property of the table that lists the routes cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteKey:
    """`name`: of the header, or the path of the field."""

    kind: RouteKind
    name: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the fields that lead to the route."""
        return tuple(self.name.split("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """`tables`: by route; `pattern`: the table of every other route, with `{route}` in it; at most `max_tables`."""

    key: RouteKey
    tables: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    max_tables: int = 50
    unknown: UnknownRoute = UnknownRoute.DEAD_LETTER


def parse_key(text: str) -> RouteKey:
    """The value of `--route-by`. Raises `SettingError`."""
    kind, colon, name = text.strip().partition(":")
    if kind == RouteKind.TYPE and not colon:
        return RouteKey(kind=RouteKind.TYPE)
    if kind in (RouteKind.HEADER, RouteKind.FIELD) and name and len(name) <= _MAX_ROUTE_CHARACTERS:
        key = RouteKey(kind=RouteKind(kind), name=name)
        if key.kind is RouteKind.HEADER or (all(key.path) and "'" not in name):
            return key
    raise SettingError(f"--route-by {text[:200]!r} is not legal: it must be {_LEGAL_KEY}")


def parse_routes(
    key: str | None, routes: Sequence[str], max_tables: int, unknown: UnknownRoute
) -> Routes | None:
    """The routes of the options, None without any. Raises `SettingError`."""
    if key is None:
        if routes:
            raise SettingError("--route is of no use without --route-by")
        return None
    tables: dict[str, str] = {}
    taken: set[str] = set()
    for text in routes:
        route, equals, table = text.partition("=")
        if not (equals and route) or len(route) > _MAX_ROUTE_CHARACTERS:
            raise SettingError(
                f"--route {text[:200]!r} is not legal: it must be ROUTE=TABLE, or *=TABLE with {_PLACE}"
            )
        if route in tables:
            raise SettingError(f"--route {text[:200]!r} is not legal: {route!r} has a table already")
        if (route == ANY) != (_PLACE in table):
            raise SettingError(
                f"--route {text[:200]!r} is not legal: {_PLACE} stands for the route of *, and only there"
            )
        named = str(parse_table_name("--route", table.replace(_PLACE, "x")))
        if named.lower() in taken:
            raise SettingError(f"--route {text[:200]!r} is not legal: {named} has a route already")
        taken.add(named.lower())
        tables[route] = table.strip() if route == ANY else named
    if not tables:
        raise SettingError("--route-by is of no use without --route")
    pattern = tables.pop(ANY, None)
    if len(tables) > max_tables:
        raise SettingError(f"--route is given {len(tables)} times, and --max-route-tables is {max_tables}")
    return Routes(key=parse_key(key), tables=tables, pattern=pattern, max_tables=max_tables, unknown=unknown)


def check_routes(routes: Routes, topic_tables: Sequence[str]) -> None:
    """Raise `SettingError` if a route leads to a table of the topic itself. `topic_tables`: rows and dead letters."""
    for route, table in routes.tables.items():
        if table.lower() in {one.lower() for one in topic_tables}:
            raise SettingError(
                f"--route {route}={table} is not legal: that is --table or --dead-letter-table; records without a "
                "route go there with --unknown-route"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedRoutes:
    """The routes that a topic's table remembers. `tables`: by route; `former`: those without a route now."""

    tables: Mapping[str, str] = field(default_factory=dict)
    former: tuple[str, ...] = ()

    @property
    def all_tables(self) -> list[str]:
        """Every table that may have records of the topic, each once, by name."""
        return sorted({*self.tables.values(), *self.former})


@dataclass(slots=True, kw_only=True)
class KnownRoutes:
    """The tables of routes so far, explicit ones included. `before`: what the topic's table remembers.

    `tables`: by route, as the options are now; the first route that came to a table keeps it.
    """

    routes: Routes
    topic_tables: Sequence[str]
    before: RememberedRoutes
    tables: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.tables = dict(self.routes.tables)
        taken = {table.lower() for table in self.tables.values()}
        for route, table in self.before.tables.items():
            if route not in self.tables and table == self._by_pattern(route) and table.lower() not in taken:
                self.tables[route] = table

    def remembered(self) -> RememberedRoutes:
        """The routes to remember: these, and every other table that ever had records of the topic."""
        former = {*self.before.former, *self.before.tables.values()} - {*self.tables.values()}
        return RememberedRoutes(tables=self.tables, former=tuple(sorted(former)))

    def add(self, route: str) -> str | None:
        """The table of a route, a new one if the pattern and the limit allow; None for an unknown route."""
        known = self.tables.get(route)
        if known is not None:
            return known
        table = self._by_pattern(route)
        if table is None or not _NAME.fullmatch(route) or len(self.tables) >= self.routes.max_tables:
            return None
        if table.lower() in {one.lower() for one in (*self.tables.values(), *self.topic_tables)}:
            return None
        self.tables[route] = table
        return table

    def _by_pattern(self, route: str) -> str | None:
        pattern = self.routes.pattern
        return None if pattern is None else pattern.replace(_PLACE, route.replace(".", "_"))


def property_of(topic: str) -> str:
    """The property of the topic's table that remembers the routes."""
    return f"{PREFIX}{topic}"


def encode_routes(routes: RememberedRoutes) -> str:
    """The property's text."""
    fields = {"version": VERSION, "tables": dict(sorted(routes.tables.items())), "former": routes.former}
    return json.dumps(fields, separators=(",", ":"))


def decode_routes(topic: str, text: str | None) -> RememberedRoutes:
    """The routes in a property. Raises `RouteStateError`."""
    if text is None:
        return RememberedRoutes()
    try:
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}, and {VERSION} is known")
        return RememberedRoutes(
            tables={str(route): _full_name(topic, table) for route, table in fields["tables"].items()},
            former=tuple(_full_name(topic, table) for table in fields["former"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, SettingError) as problem:
        raise RouteStateError(
            f"{property_of(topic)} is no list of routes ({str(problem)[:200]}): {text[:200]!r}"
        ) from None


def _full_name(topic: str, table: str) -> str:
    return str(parse_table_name(property_of(topic), table))
