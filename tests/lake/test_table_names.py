"""Names of tables, and the tables of topics."""

import pytest

from kafscale.errors import SettingError
from kafscale.lake.table_names import Tables, parse_table_name, tables_of


def test_a_name_has_catalog_namespace_of_any_depth_and_table() -> None:
    name = parse_table_name("--table", " lake.raw.web-shop.events_1 ")
    assert (name.catalog, name.namespace, name.table) == ("lake", ("raw", "web-shop"), "events_1")
    assert str(name) == "lake.raw.web-shop.events_1"


@pytest.mark.parametrize(
    "text", ["", "events", "local..events", "local.db.", "local.db.a b", "local.db.`a.b`"]
)
def test_what_is_no_full_name_is_refused_with_what_is_legal(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_table_name("--dead-letter-table", text)
    assert f"--dead-letter-table {text!r} is not legal" in str(refused.value)
    assert "catalog.namespace.table" in str(refused.value)


def test_a_name_without_a_catalog_gets_a_proposal() -> None:
    with pytest.raises(SettingError, match=r"did you mean local\.db\.events\?"):
        parse_table_name("--table", "db.events")


def test_a_name_and_a_rule() -> None:
    assert tables_of(["a.b"], "local.db.events", "{table}_dead_letters") == {
        "a.b": Tables(rows="local.db.events", dead_letters="local.db.events_dead_letters")
    }
    assert tables_of(["a.b", "c-d"], "lake.kafka.{topic}", "lake.dead.{topic}") == {
        "a.b": Tables(rows="lake.kafka.a_b", dead_letters="lake.dead.a_b"),
        "c-d": Tables(rows="lake.kafka.c-d", dead_letters="lake.dead.c-d"),
    }


def test_several_topics_may_share_a_table_on_purpose() -> None:
    shared = tables_of(["a", "b"], "local.db.all", "{table}_dead")
    assert {one.rows for one in shared.values()} == {"local.db.all"}


@pytest.mark.parametrize(
    ("topics", "table", "dead", "problem"),
    [
        (["a"], "db.events", "{table}_dead", "did you mean local.db.events"),
        (["a"], "local.db.events", "local.db.events", "is the table of the rows"),
        (["a.b", "a_b"], "local.db.{topic}", "{table}_dead", "'a.b' and 'a_b' would share"),
        (["a"], "local.db.e", "dead", "--dead-letter-table 'dead' is not legal"),
    ],
)
def test_names_that_are_refused(topics: list[str], table: str, dead: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        tables_of(topics, table, dead)
