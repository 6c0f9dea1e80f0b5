"""The topics that their configs switch on: which, into which tables, and which are in each other's way."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.iceberg_configs import ENABLE, ON_EXPIRED, STARTING_OFFSETS, TABLE, VALUE_FORMAT
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.config_topics import FoundTopics, TableRule, TopicToExport, topics_by_config
from kafscale.lake.offset_points import LogEdge
from kafscale.lake.table_names import Tables
from kafscale.metadata.model import TopicRecord

RULE = TableRule(table="lake.kafka.{topic}", namespaces=["sales"])


def record(name: str, **configs: str) -> TopicRecord:
    by_name = {"table": TABLE, "format": VALUE_FORMAT, "enable": ENABLE}
    named = {"enable": "true"} | configs
    return TopicRecord(
        name=name,
        topic_id=uuid.uuid4(),
        partition_count=1,
        configs={by_name[key]: value for key, value in named.items()},
    )


def tables_in(found: FoundTopics) -> dict[str, str]:
    return {topic: one.tables.rows for topic, one in found.topics.items()}


def test_topics_that_are_on_have_tables_by_rule_or_name() -> None:
    found = topics_by_config(
        [
            record("shop.orders"),
            record("b", table="people"),
            record("a", table="sales.people"),
            record("off", enable="false"),
            TopicRecord(name="none", topic_id=uuid.uuid4(), partition_count=1),
        ],
        RULE,
    )
    assert tables_in(found) == {
        "a": "lake.sales.people",
        "b": "lake.kafka.people",
        "shop.orders": "lake.kafka.shop_orders",
    }
    assert found.topics["a"].tables.dead_letters == "lake.sales.people_dead_letters"
    assert not found.problems


def test_only_wanted_topics_are_looked_at() -> None:
    found = topics_by_config([record("a"), record("b", format="xml")], RULE, lambda topic: topic == "a")
    assert (list(found.topics), found.problems) == (["a"], {})


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (record("x", format="xml"), "kafscale.iceberg.value.format='xml' is not legal"),
        (record("x", table="finance.ledger"), "its namespace must be one of kafka, sales"),
        (record("x", table="a.b.c"), "its namespace must be one of kafka, sales"),
        (record("x", table="x y"), "kafscale.iceberg.table='x y' is not legal"),
    ],
)
def test_a_topic_with_a_problem_stops_no_other(one: TopicRecord, words: str) -> None:
    found = topics_by_config([one, record("good")], RULE)
    assert list(found.topics) == ["good"]
    assert words in found.problems["x"]


def test_a_table_that_another_topic_has_is_refused() -> None:
    found = topics_by_config(
        [record("a", table="z_orders"), record("z.orders"), record("z_orders"), record("b")], RULE
    )
    assert tables_in(found) == {"b": "lake.kafka.b", "z.orders": "lake.kafka.z_orders"}
    assert sorted(found.problems) == ["a", "z_orders"]
    assert all("is that of topic 'z.orders'" in why for why in found.problems.values())


def test_topics_that_all_name_a_table_share_it() -> None:
    found = topics_by_config([record("a", table="all"), record("b", table="all")], RULE)
    assert set(tables_in(found).values()) == {"lake.kafka.all"}


def test_without_a_rule_topics_share_the_table() -> None:
    found = topics_by_config([record("a"), record("b")], TableRule(table="lake.kafka.all"))
    assert tables_in(found) == {"a": "lake.kafka.all", "b": "lake.kafka.all"}


def test_what_a_topic_says_stands_above_the_options() -> None:
    configs = {ENABLE: "true", STARTING_OFFSETS: "latest", ON_EXPIRED: "record"}
    said = TopicRecord(name="a", topic_id=uuid.uuid4(), partition_count=1, configs=configs)
    one = topics_by_config([said], RULE).topics["a"]
    assert one.start(LogEdge.EARLIEST) is LogEdge.LATEST
    assert one.gap_policy(GapPolicy.FAIL) is GapPolicy.RECORD
    silent = TopicToExport(tables=Tables(rows="l.k.a", dead_letters="l.k.b"))
    assert silent.start(LogEdge.LATEST) is LogEdge.LATEST
    assert silent.gap_policy(GapPolicy.RECORD) is GapPolicy.RECORD


NAMES = st.text("ab._-", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.one_of(st.none(), NAMES), max_size=8))
def test_every_topic_has_a_table_or_a_problem(topics: dict[str, str | None]) -> None:
    records = [record(name) if table is None else record(name, table=table) for name, table in topics.items()]
    found = topics_by_config(records, RULE)
    assert {*found.topics, *found.problems} == set(topics)
    assert not {*found.topics} & {*found.problems}
    assert found == topics_by_config(reversed(records), RULE)
    by_table: dict[str, list[bool]] = {}
    for one in found.topics.values():
        assert one.tables.rows.startswith("lake.kafka.")
        by_table.setdefault(one.tables.rows, []).append(one.config.table is None)
    assert not any(len(shared) > 1 and any(shared) for shared in by_table.values())
