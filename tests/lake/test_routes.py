"""Routes of a topic into tables: what is legal, which table a route gets, and what is remembered."""

import pytest

from kafscale.errors import SettingError
from kafscale.lake.routes import (
    KnownRoutes,
    RememberedRoutes,
    RouteKey,
    RouteKind,
    Routes,
    RouteStateError,
    UnknownRoute,
    check_routes,
    decode_routes,
    encode_routes,
    parse_key,
    parse_routes,
)

OWN = ("lake.db.orders", "lake.db.orders_dead_letters")


def parsed(*routes: str, most: int = 50) -> Routes:
    found = parse_routes("type", routes, most, UnknownRoute.DEAD_LETTER)
    assert found is not None
    return found


def known(routes: Routes, before: RememberedRoutes | None = None) -> KnownRoutes:
    return KnownRoutes(routes=routes, topic_tables=OWN, before=before or RememberedRoutes())


def test_keys() -> None:
    assert parse_key("type") == RouteKey(kind=RouteKind.TYPE)
    assert parse_key("header:a b:c") == RouteKey(kind=RouteKind.HEADER, name="a b:c")
    assert parse_key("field:payload.kind").path == ("payload", "kind")
    for text in ("", "type:x", "header:", "field:a..b", "field:it's", "subject", "header:" + "x" * 300):
        with pytest.raises(SettingError, match=r"--route-by .* is not legal: it must be type, header:NAME"):
            parse_key(text)


@pytest.mark.parametrize(
    ("key", "routes", "words"),
    [
        (None, ["a=l.d.t"], "of no use without --route-by"),
        ("type", [], "of no use without --route"),
        ("type", ["a"], "must be ROUTE=TABLE"),
        ("type", ["=l.d.t"], "must be ROUTE=TABLE"),
        ("type", ["a=t"], "catalog.namespace.table"),
        ("type", ["a=l.d.{route}"], "stands for the route of"),
        ("type", ["*=l.d.t"], "stands for the route of"),
        ("type", ["a=l.d.t", "a=l.d.u"], "'a' has a table already"),
        ("type", ["a=l.d.t", "b=l.d.T"], "l.d.T has a route already"),
        ("type", ["a=l.d.t", "b=l.d.u", "c=l.d.v"], "given 3 times, and --max-route-tables is 2"),
    ],
)
def test_options_that_are_not_legal_are_refused(key: str | None, routes: list[str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        parse_routes(key, routes, 2, UnknownRoute.TABLE)


def test_a_route_to_the_topics_own_tables_is_refused() -> None:
    assert parse_routes(None, [], 50, UnknownRoute.TABLE) is None
    check_routes(parsed("a=lake.db.a"), OWN)
    with pytest.raises(SettingError, match="that is --table or --dead-letter-table"):
        check_routes(parsed("a=lake.db.Orders"), OWN)


def test_routes_get_tables_by_name_and_by_pattern() -> None:
    found = known(parsed("a=lake.db.first", "*=lake.db.by_{route}", most=3))
    assert found.add("a") == "lake.db.first"
    assert found.add("shop.Order") == "lake.db.by_shop_Order"
    assert found.add("shop_Order") is None, "its table is that of shop.Order"
    assert found.add("no name") is None
    assert found.add("x" * 101) is None
    assert found.add("b") == "lake.db.by_b"
    assert found.add("c") is None, "there are enough"
    assert found.add("shop.Order") == "lake.db.by_shop_Order"
    assert known(parsed("a=lake.db.a")).add("b") is None
    assert known(parsed("*=lake.db.{route}")).add("orders") is None, "it is the topic's own"


def test_what_was_a_table_once_is_remembered() -> None:
    found = known(parsed("a=lake.db.first", "*=lake.db.by_{route}"))
    found.add("b.c")
    before = found.remembered()
    assert decode_routes("orders", encode_routes(before)) == before
    again = known(parsed("a=lake.db.first", "*=lake.db.by_{route}"), before)
    assert again.remembered() == before
    assert again.add("b_c") is None, "whichever comes first in a later batch"
    other = known(parsed("a=lake.db.second"), before)
    assert other.add("b.c") is None
    assert other.remembered() == RememberedRoutes(
        tables={"a": "lake.db.second"}, former=("lake.db.by_b_c", "lake.db.first")
    )
    assert other.remembered().all_tables == ["lake.db.by_b_c", "lake.db.first", "lake.db.second"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":2,"tables":{},"former":[]}', '{"version":1,"tables":{"a":"x"}}']
)
def test_a_property_that_is_none_is_refused(text: str) -> None:
    assert decode_routes("orders", None) == RememberedRoutes()
    with pytest.raises(RouteStateError, match=r"kafscale.routes.orders is no list of routes"):
        decode_routes("orders", text)
