"""Every page is well-formed whatever clients call their topics, groups, members and themselves."""

import math
import uuid
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.log.led_partitions import StoredTopic
from kafscale.ops.metrics import Metrics
from kafscale.pages.broker_facts import BrokerFacts, HealthState
from kafscale.pages.figures import Figures, Gauges, LagRow, LagTable
from kafscale.pages.frame import Asked, Frame, document
from kafscale.pages.group_pages import group_elsewhere_page, group_page, groups_page, ranges, selected_groups
from kafscale.pages.markup import Child
from kafscale.pages.overview_page import busiest_topics, groups_behind, overview_page
from kafscale.pages.parts import ROWS_PER_PAGE
from kafscale.pages.rates import NO_COUNTS, Sample, TopicCounts, rates_between
from kafscale.pages.request_page import request_page
from kafscale.pages.snapshots import (
    BrokerSnapshot,
    ClusterSnapshot,
    GroupElsewhere,
    GroupSnapshot,
    GroupSummary,
    MemberSnapshot,
    PartitionSnapshot,
    TopicLeaders,
    TopicSnapshot,
)
from kafscale.pages.store_page import store_page
from kafscale.pages.topic_pages import rows_of_page, selected_topics, topic_page, topics_page
from kafscale.protocol.quoting import quoted
from tests.pages.html import Document, parsed
from tests.pages.shown_broker import assignment

NAMES = st.text(st.one_of(st.characters(), st.sampled_from("<>&\"'/\0\u202e\n")), max_size=120)
SEVERAL = st.lists(NAMES, min_size=1, max_size=4, unique=True)
COUNTS = st.builds(TopicCounts, *[st.floats(0, 1e12)] * 4)


def figures_of(topics: Sequence[str], groups: Sequence[str], counts: TopicCounts = NO_COUNTS) -> Figures:
    """Figures in which every group has read every topic, with a lag, without one, and with one that is not known."""
    after = Sample(at_sec=2, topics=dict.fromkeys(topics, counts), topic_dollars=dict.fromkeys(topics, 0.5))
    rows = [
        LagRow(group, topic, partition, 5, end)
        for group in groups
        for topic in topics
        for partition, end in enumerate((5, 9, None, 2))
    ]
    return Figures(
        rates=rates_between(Sample(at_sec=0), after),
        totals=after,
        stored={topic: StoredTopic(4, 3, 10, 2, 4096) for topic in topics},
        lag=LagTable(tuple(rows), 3),
        topics=tuple(sorted(topics)),
        group_ids=tuple(sorted(groups)),
    )


def shown(asked: Asked, children: Sequence[Child], cluster_id: str = "id") -> Document:
    frame = Frame(broker_id=1, version="1", cluster_id=cluster_id, shown_at="now", asked=asked)
    return parsed(document(frame, asked.name, *children))


def summary_of(group_id: str, protocol: str = "consumer") -> GroupSummary:
    return GroupSummary(
        group_id=group_id, state="Stable", group_type="classic", protocol_type=protocol, members=1
    )


def facts_of(reason: str, metrics: Metrics) -> BrokerFacts:
    problems = {reason: reason}
    return BrokerFacts(
        health=HealthState(liveness_problems=problems, readiness_problems=problems, warnings=problems),
        metrics=metrics,
        gauges=Gauges(metrics),
        up_sec=5,
        lease_ttl_sec=10,
        records_at=reason,
        metadata_at=reason,
    )


@given(SEVERAL, NAMES, NAMES)
@settings(max_examples=50)
def test_lists_show_every_name_as_text(names: list[str], find: str, sort: str) -> None:
    figures = figures_of(names, names)
    leaders = dict.fromkeys(names, TopicLeaders(partition_count=4, led_anywhere=3, is_deleting=False))
    asked = Asked(path="/topics", find=find, sort=sort)
    selected = selected_topics(asked, figures)
    assert set(selected) == {name for name in names if find in name}
    text = shown(asked, topics_page(asked, figures, selected, leaders)).text
    assert all(quoted(name, 80) in text for name in selected)
    asked = Asked(path="/groups", find=find, sort="lag")
    found = selected_groups(asked, figures)
    text = shown(asked, groups_page(asked, figures, found, {one: summary_of(one) for one in found})).text
    assert all(quoted(name, 80) in text for name in found)


@given(NAMES, NAMES, st.dictionaries(NAMES, NAMES, max_size=3), COUNTS)
@settings(max_examples=50)
def test_a_topic_is_shown_whatever_its_configs(
    name: str, group: str, configs: dict[str, str], counts: TopicCounts
) -> None:
    partitions = (
        PartitionSnapshot(index=0, leader=None, leader_epoch=None),
        PartitionSnapshot(
            index=1, leader=1, leader_epoch=3, is_led_here=True, log_start_offset=2, log_end_offset=9
        ),
    )
    state = TopicSnapshot(
        name=name,
        topic_id=uuid.UUID(int=1),
        partition_count=2,
        is_deleting=True,
        configs=configs,
        partitions=partitions,
    )
    asked = Asked(path="/topic", name=name)
    text = shown(asked, topic_page(asked, figures_of([name], [group], counts), state, 12.5)).text
    assert all(quoted(value, 300) in text for value in configs.values())
    assert "no leader" in text


@given(NAMES, NAMES, NAMES, NAMES, st.one_of(st.binary(max_size=60), st.just(assignment({"a": [1, 2, 5]}))))
@settings(max_examples=50)
def test_a_group_is_shown_whatever_its_members(
    group_id: str, client: str, instance: str, protocol: str, assigned: bytes
) -> None:
    members = tuple(
        MemberSnapshot(
            member_id=client,
            group_instance_id=name,
            client_id=client,
            client_host=client,
            assignment=assigned,
        )
        for name in (None, instance)
    )
    for protocol_type in ("consumer", protocol):
        state = GroupSnapshot(
            summary=summary_of(group_id, protocol_type),
            generation=3,
            protocol_name=protocol,
            leader=client,
            members=members,
        )
        asked = Asked(path="/group", name=group_id)
        text = shown(asked, group_page(asked, figures_of(["t"], [group_id]), state)).text
        assert quoted(group_id, 249) in text
        assert quoted(client, 80) in text
    found = group_elsewhere_page(group_id, GroupElsewhere(coordinator=None, reason=client), {})
    assert client.replace("\0", "") in shown(asked, found).text or not client.isprintable()


@given(NAMES, NAMES, SEVERAL)
@settings(max_examples=50)
def test_overview_stores_and_requests_show_any_text(reason: str, rack: str, names: list[str]) -> None:
    metrics = Metrics()
    metrics.requests("PutObject").count += 1
    metrics.object_store("put").observe(0.1, ValueError("x"))
    metrics.topic(names[0]).bytes_in += 1
    figures, facts = figures_of(names, names), facts_of(reason, metrics)
    broker = BrokerSnapshot(
        broker_id=1, state="running", endpoints=(f"PLAINTEXT://{rack}:1",), rack=rack, features=("f 1-2",)
    )
    cluster = ClusterSnapshot(
        cluster_id=rack,
        controller_id=1,
        brokers=(broker,),
        brokers_omitted=2,
        features={"f": 1},
        is_registered=False,
        unrenewed_ms=9000,
    )
    summaries = [summary_of(name) for name in groups_behind(figures)]
    asked = Asked(path="/")
    overview = overview_page(asked, facts, figures, cluster, {}, summaries)
    assert quoted(rack, 60) in shown(asked, overview, rack).text
    assert list(busiest_topics(figures)) == sorted(names, key=figures.topics.index)
    shown(asked, store_page(facts, figures))
    shown(asked, request_page(asked, facts, figures))


def test_long_lists_are_shown_page_by_page() -> None:
    names = [f"topic-{number:05}" for number in range(10_000)]
    figures = figures_of(names, [])
    seen: list[str] = []
    for page in range(1, math.ceil(len(names) / ROWS_PER_PAGE) + 1):
        seen += rows_of_page(selected_topics(Asked(path="/topics"), figures), page)
    assert seen == names
    asked = Asked(path="/topics", page=100, sort="in")
    links = shown(asked, topics_page(asked, figures, selected_topics(asked, figures), {})).links
    assert sum(link.startswith("/topic?") for link in links) == ROWS_PER_PAGE


@given(st.sets(st.integers(0, 500)))
def test_ranges_name_partitions_or_their_number(indexes: set[int]) -> None:
    shown_ranges = ranges(indexes)
    assert len(shown_ranges) < 160
    if "..." in shown_ranges:
        assert f"({len(indexes):,} in all)" in shown_ranges
        return
    found = set[int]()
    for part in filter(None, shown_ranges.split(", ")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    assert found == indexes
