"""A topic becomes what its resource says, and stays what else it was."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.metadata.model import TopicRecord
from kafscale.operator.errors import SpecError
from kafscale.operator.topics.plan import TopicPlan, plan_topic
from kafscale.operator.topics.spec import DeletionPolicy, TopicSpec, topic_spec

LEVEL = 1


def wanted(partition_count: int = 3, configs: Mapping[str, str] | None = None) -> TopicSpec:
    return TopicSpec(
        cluster="c",
        name="t",
        partition_count=partition_count,
        configs=configs or {},
        deletion_policy=DeletionPolicy.DELETE,
    )


def there(partition_count: int = 3, configs: Mapping[str, str] | None = None) -> TopicRecord:
    return TopicRecord(
        name="t", topic_id=uuid.UUID(int=1), partition_count=partition_count, configs=configs or {}
    )


def test_a_missing_topic_is_made() -> None:
    plan = plan_topic(wanted(6, {"retention.ms": "1000"}), {}, None)
    assert (plan.create, plan.partition_count, plan.set_configs) == (True, 6, {"retention.ms": "1000"})


def test_a_topic_that_is_as_it_should_be_is_left_alone() -> None:
    same = {"retention.ms": "1000"}
    assert plan_topic(wanted(3, same), same, there(3, {**same, "max.message.bytes": "7"})).is_empty


@pytest.mark.parametrize(("has", "wants", "to"), [(3, 6, 6), (3, 3, None), (6, 3, None)])
def test_partitions_are_added_and_never_taken_away(has: int, wants: int, to: int | None) -> None:
    plan = plan_topic(wanted(wants), {}, there(has))
    assert plan.partition_count == to
    assert bool(plan.notes) == (has > wants)


def test_drift_of_what_the_resource_names_is_corrected() -> None:
    plan = plan_topic(
        wanted(configs={"retention.ms": "1000"}),
        {"retention.ms": "1000"},
        there(configs={"retention.ms": "5"}),
    )
    assert plan.set_configs == {"retention.ms": "1000"}


def test_what_an_administrator_set_besides_stays() -> None:
    found = there(configs={"retention.ms": "1000", "segment.bytes": "2000000"})
    plan = plan_topic(wanted(configs={"retention.ms": "2000"}), {"retention.ms": "1000"}, found)
    assert plan.changed(found.configs) == {"retention.ms": "2000", "segment.bytes": "2000000"}


def test_what_the_resource_names_no_more_is_reset() -> None:
    found = there(configs={"retention.ms": "1000"})
    plan = plan_topic(wanted(), {"retention.ms": "1000"}, found)
    assert plan.reset_configs == {"retention.ms"}
    assert plan.changed(found.configs) == {}


def test_config_changed_after_undeclaring_is_not_reset() -> None:
    plan = plan_topic(wanted(), {"retention.ms": "1000"}, there(configs={"retention.ms": "5"}))
    assert plan.is_empty


NAMES = st.sampled_from(["retention.ms", "segment.bytes", "max.message.bytes", "compression.type"])
CONFIGS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "3"]))


@given(CONFIGS, CONFIGS, CONFIGS, st.integers(1, 9), st.integers(1, 9))
def test_applied_plan_is_complete_and_changes_nothing_else(
    named: dict[str, str], applied: dict[str, str], has: dict[str, str], wants: int, count: int
) -> None:
    spec, found = wanted(wants, named), there(count, has)
    plan = plan_topic(spec, applied, found)
    after = there(max(count, plan.partition_count or 0), plan.changed(has))
    assert plan_topic(spec, named, after).is_empty
    assert named.items() <= after.configs.items()
    for name in has.keys() - named.keys():
        reset = applied.get(name) == has[name]
        assert (name not in after.configs) == reset
    assert isinstance(plan, TopicPlan)


def spec(**fields: Any) -> dict[str, Any]:
    return {"clusterRef": {"name": "c"}, **fields}


def test_short_words_are_kafkas_configs() -> None:
    found = topic_spec(
        "orders",
        spec(partitions=12, retention="24h", compression="zstd", config={"segment.bytes": 2000000}),
        LEVEL,
    )
    assert (found.name, found.partition_count, found.cluster) == ("orders", 12, "c")
    assert found.configs == {
        "retention.ms": "86400000",
        "compression.type": "zstd",
        "segment.bytes": "2000000",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"config": {"retention.ms": "soon"}}, ["retention.ms", "soon"]),
        ({"config": {"no.such.config": "1"}}, ["no.such.config"]),
        ({"retention": "1y"}, ["retention", "1y", "24h"]),
        ({"topicName": ".."}, ["topicName", ".."]),
    ],
)
def test_what_is_wrong_is_said_with_its_name_and_value(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        topic_spec("t", spec(**fields), LEVEL)
    assert all(word in str(refused.value) for word in words)
