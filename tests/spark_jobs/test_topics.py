"""The topics of a job: named ones, and those of a pattern, which come and go while it runs."""

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import pytest

from kafscale.errors import SettingError, StoreUnavailableError
from kafscale.lake.offset_points import LogEdge, OffsetPoint
from kafscale.lake.report import ExportReport
from kafscale.lake.table_names import Tables
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.export_options import ExportCommand, TopicOptions
from spark_jobs.job.topics import ExportTopics


class Cluster:
    """The names of its topics, and what a job says."""

    def __init__(self, *topics: str) -> None:
        self.topics: Iterable[str] | Exception = topics
        self.said: list[str] = []

    def known(self) -> Iterable[str]:
        if isinstance(self.topics, Exception):
            raise self.topics
        return self.topics

    def job(
        self,
        pattern: str | None = None,
        *topics: str,
        start: OffsetPoint = LogEdge.EARLIEST,
        keeps_going: bool = True,
        table: str = "local.db.{topic}",
    ) -> ExportTopics:
        given: dict[str, Any] = {one.name: None for one in fields(ExportCommand)}
        given |= {
            "topics": topics,
            "topic_pattern": re.compile(pattern) if pattern else None,
            "table": table,
            "dead_letter_table": "{table}_letters",
            "interval_sec": 1.0 if keeps_going else None,
        }
        events = ExportReport(self.said.append, lambda: 0.0)
        command = ExportCommand(**given)
        return ExportTopics(command, self.known, options_with(start), events, self.said.append)


def options_with(start: OffsetPoint) -> Callable[[Tables], TopicOptions]:
    return lambda tables: TopicOptions(
        table=tables.rows, dead_letter_table=tables.dead_letters, value=ValueOptions(), start=start
    )


def test_new_topics_of_a_pattern_are_found() -> None:
    cluster = Cluster("shop.a", "other")
    job = cluster.job(r"shop\..*")
    assert list(job.of_round()) == ["shop.a"]
    cluster.topics = ["shop.a", "shop.b", "other"]
    found = job.of_round()
    assert {topic: options.table for topic, options in found.items()} == {
        "shop.a": "local.db.shop_a",
        "shop.b": "local.db.shop_b",
    }
    assert cluster.said == ["shop.b: a new topic, which is exported from now on"]
    assert job.of_round() == found
    assert len(cluster.said) == 1


def test_a_new_topic_is_exported_from_its_beginning() -> None:
    """Records that were written before a round found the topic are no less new."""
    cluster = Cluster("a")
    job = cluster.job(".*", start=LogEdge.LATEST)
    assert job.of_round()["a"].start is LogEdge.LATEST
    cluster.topics = ["a", "b"]
    for _ in range(2):
        assert {topic: one.start for topic, one in job.of_round().items()} == {
            "a": LogEdge.LATEST,
            "b": LogEdge.EARLIEST,
        }


def test_a_topic_that_is_gone_is_left_out_and_named() -> None:
    cluster = Cluster("a", "b")
    job = cluster.job("[ab]", "named")
    job.of_round()
    cluster.topics = ["b"]
    assert sorted(job.of_round()) == ["b", "named"]
    assert cluster.said == ["a: is not exported any more"]


def test_a_pattern_may_match_nothing_yet_if_the_job_keeps_going() -> None:
    cluster = Cluster()
    with pytest.raises(SettingError, match="matches no topic"):
        cluster.job("a.*", keeps_going=False)
    job = cluster.job("a.*")
    assert cluster.said == ["there is no topic that matches 'a.*' yet"]
    assert job.of_round() == {}
    assert job.tables()["topic"].rows == "local.db.topic"
    cluster.topics = ["ab"]
    assert list(job.of_round()) == ["ab"]


@pytest.mark.parametrize("problem", ["the store is away", "a table for two topics"])
def test_a_round_without_a_look_has_the_topics_of_the_last_one(problem: str) -> None:
    cluster = Cluster("shop.a")
    job = cluster.job(".*")
    job.of_round()
    away = StoreUnavailableError("away")
    cluster.topics = away if problem == "the store is away" else ["shop.a", "shop_a"]
    assert list(job.of_round()) == ["shop.a"]
    assert cluster.said[0].startswith("the topics stay those of the last round: ")


def test_topics_that_may_be_named_in_offsets() -> None:
    cluster = Cluster("a1")
    assert cluster.job("a.").wants("a2")
    assert not cluster.job("a.").wants("b1")
    assert not cluster.job("a.", keeps_going=False).wants("a2")
    assert cluster.job("a.", "named", keeps_going=False).wants("named")
