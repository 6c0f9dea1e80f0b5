"""Which tables topics go to."""

import pytest

from kafscale.errors import SettingError
from spark_jobs.job.table_naming import Tables, tables_of


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
