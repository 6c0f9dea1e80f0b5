"""The first page: health, rates, brokers, the busiest topics, the groups with the largest lag. Pure."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Final

from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.ops import metric_families as families
from kafscale.pages import units
from kafscale.pages.broker_facts import SEC_PER_MONTH, BrokerFacts, HealthState
from kafscale.pages.figures import Figures
from kafscale.pages.frame import Asked
from kafscale.pages.group_pages import group_table, omitted_note, state_badge
from kafscale.pages.markup import Child, Element, address, element, link, name_of
from kafscale.pages.parts import alert, badge, card, facts, line, pair, table, text, tile, tiles
from kafscale.pages.rates import NO_COUNTS
from kafscale.pages.snapshots import BrokerSnapshot, ClusterSnapshot, GroupSummary, TopicLeaders
from kafscale.pages.topic_pages import lag_of, topic_table, window_note

SHOWN: Final = 8

_MAX_REASON: Final = 500
_LATE_RENEWAL: Final = 0.5


def busiest_topics(figures: Figures) -> Sequence[str]:
    """The topics with most bytes in and out, then those with most stored."""

    def weight(name: str) -> tuple[float, int]:
        rates, stored = figures.rates.topics.get(name, NO_COUNTS), figures.stored.get(name)
        return rates.bytes_in + rates.bytes_out, 0 if stored is None else stored.size_bytes

    return heapq.nlargest(SHOWN, figures.topics, key=weight)


def groups_behind(figures: Figures) -> Sequence[str]:
    """The groups with the largest lag."""
    totals = {} if figures.lag is None else figures.lag.by_group
    return heapq.nlargest(
        SHOWN, figures.group_ids, key=lambda group_id: totals[group_id].lag if group_id in totals else -1
    )


def overview_page(
    asked: Asked,
    facts_of: BrokerFacts,
    figures: Figures,
    cluster: ClusterSnapshot,
    leaders: Mapping[str, TopicLeaders],
    summaries: Sequence[GroupSummary],
) -> list[Child]:
    """The page. `leaders`: of `busiest_topics`; `summaries`: of `groups_behind`."""
    return [
        *health_alerts(facts_of.health),
        _tiles(facts_of, figures, asked),
        card(
            "Topics",
            topic_table(figures, busiest_topics(figures), leaders),
            _more(len(figures.topics), "topics", "/topics", asked),
            note=f"the busiest; {window_note(figures)}",
        ),
        omitted_note(figures),
        card(
            "Groups",
            group_table(figures, summaries),
            _more(len(figures.group_ids), "groups", "/groups", asked),
            note=element("span", "that this broker coordinates, the largest lag first: ", *_states(facts_of)),
        ),
        card(
            "Brokers",
            _brokers(cluster, facts_of.metrics.broker_id),
            _omitted(cluster),
            note=_shards(facts_of, cluster),
        ),
        pair(
            card("This broker", facts(_broker_facts(facts_of, cluster))),
            card("Health", _health(facts_of)),
        ),
    ]


def health_alerts(health: HealthState) -> list[Child]:
    """The problems and warnings of `/healthz` and `/readyz`."""
    bad = [*health.liveness_problems.items(), *health.readiness_problems.items()]
    return [
        *(alert("bad", f"{name}: {reason[:_MAX_REASON]}") for name, reason in bad),
        *(alert("warn", f"{name}: {reason[:_MAX_REASON]}") for name, reason in health.warnings.items()),
    ]


def _tiles(facts_of: BrokerFacts, figures: Figures, asked: Asked) -> Element:
    gauges, total, points = facts_of.gauges, figures.rates.total, figures.rates.points
    offline = gauges.get(families.PARTITIONS_OFFLINE) or 0
    stored = figures.stored.values()
    return tiles(
        tile("Health", *_verdict(facts_of.health)),
        tile(
            "In",
            units.size_rate(total.bytes_in),
            units.record_rate(total.records_in),
            line([(at, rates.bytes_in) for at, rates in points], "bytes in, as this page was read"),
        ),
        tile(
            "Out",
            units.size_rate(total.bytes_out),
            units.record_rate(total.records_out),
            line([(at, rates.bytes_out) for at, rates in points], "bytes out, as this page was read"),
        ),
        tile(
            "Topics",
            units.count(len(figures.topics)),
            f"{units.things(gauges.get(families.PARTITIONS_LED), 'partition')} led here",
            element("div", f"{units.count(offline)} offline", class_="bad") if offline else None,
        ),
        tile(
            "Groups",
            units.count(len(figures.group_ids)),
            f"{units.things(gauges.get(families.GROUP_MEMBERS), 'member')} here",
        ),
        tile("Lag", lag_of(figures.lag.total if figures.lag else None), "records, of all groups here"),
        tile(
            "Stored",
            units.size(sum(one.size_bytes for one in stored)),
            f"{units.count(sum(one.segments for one in stored))} segments and slices",
        ),
        _cost(facts_of, figures, asked),
        in_fours=True,
    )


def _verdict(health: HealthState) -> tuple[Child, str]:
    if health.liveness_problems:
        return badge("not alive", "bad"), "only a restart helps"
    if health.readiness_problems:
        return badge("not ready", "bad"), "see above"
    if health.warnings:
        return badge("ready", "warn"), f"with {units.things(len(health.warnings), 'warning')}"
    return badge("ready", "good"), "alive, no warnings"


def _cost(facts_of: BrokerFacts, figures: Figures, asked: Asked) -> Element:
    if not facts_of.is_priced:
        connections = facts_of.metrics.connections
        return tile("Clients", units.count(connections.current), "connections")
    month = sum(figures.rates.dollars.values()) * SEC_PER_MONTH
    target = address("/requests", refresh=asked.refresh)
    return tile("Requests", link(target, units.dollars(month)), "a month, at this rate")


def _more(total: int, what: str, path: str, asked: Asked) -> Element | None:
    if total <= SHOWN:
        return None
    target = address(path, refresh=asked.refresh)
    return element("p", link(target, f"All {total:,} {what}"), class_="more")


def _states(facts_of: BrokerFacts) -> list[Child]:
    counts = facts_of.gauges.all(families.GROUPS)
    shown = [(state, counts.get((state.value,), 0)) for state in GroupState if state is not GroupState.DEAD]
    return [
        part
        for state, count in shown
        if count
        for part in (" ", units.count(count), " ", state_badge(state.value))
    ]


def _brokers(cluster: ClusterSnapshot, broker_id: int) -> Element:
    columns = (
        text("Broker"),
        text("State"),
        text("Listeners"),
        text("Rack", wide=True),
        text("Formats it supports", wide=True),
    )
    return table(
        columns, (_broker_row(one, cluster, broker_id) for one in cluster.brokers), empty="No brokers."
    )


def _broker_row(broker: BrokerSnapshot, cluster: ClusterSnapshot, broker_id: int) -> list[Child]:
    kind = "good" if broker.state == "running" else "warn"
    marks = ["this page"] * (broker.broker_id == broker_id) + ["controller"] * (
        broker.broker_id == cluster.controller_id
    )
    return [
        element("span", str(broker.broker_id), *(part for mark in marks for part in (" ", badge(mark)))),
        badge(broker.state, kind),
        element("span", *(element("div", name_of(at, 120)) for at in broker.endpoints)),
        units.NOT_KNOWN if broker.rack is None else name_of(broker.rack, 60),
        element("span", *(element("div", one) for one in broker.features)),
    ]


def _omitted(cluster: ClusterSnapshot) -> Element | None:
    if not cluster.brokers_omitted:
        return None
    return element("p", f"and {cluster.brokers_omitted:,} more", class_="more")


def _shards(facts_of: BrokerFacts, cluster: ClusterSnapshot) -> str:
    led = units.things(facts_of.gauges.get(families.PARTITIONS_LED), "partition")
    shards = units.count(facts_of.gauges.get(families.GROUP_SHARDS))
    known = f"{len(cluster.brokers) + cluster.brokers_omitted:,} known"
    return f"{known}; this one leads {led} and {shards} of {keys.GROUP_SHARD_COUNT} group shards"


def _broker_facts(facts_of: BrokerFacts, cluster: ClusterSnapshot) -> list[tuple[str, Child]]:
    metrics = facts_of.metrics
    late = cluster.unrenewed_ms > _LATE_RENEWAL * facts_of.lease_ttl_sec * 1000
    renewed = f"renewed {units.duration(cluster.unrenewed_ms / 1000)} ago"
    lease: Child = f"of {facts_of.lease_ttl_sec} s, {renewed}"
    if not cluster.is_registered:
        lease = element("span", "none: it registers again", class_="bad")
    elif late:
        lease = element("span", f"of {facts_of.lease_ttl_sec} s, {renewed}", class_="warn")
    connections = metrics.connections
    return [
        (
            "Broker",
            f"{metrics.broker_id}, version {metrics.version}, up for {units.duration(facts_of.up_sec)}",
        ),
        ("Cluster id", cluster.cluster_id),
        ("Lease", lease),
        ("Leases ended", units.count(metrics.leases_ended)),
        (
            "Clients",
            f"{units.things(connections.current, 'connection')}, {units.count(connections.accepted)} since the start",
        ),
        ("Records in", name_of(facts_of.records_at, 300)),
        ("Metadata in", name_of(facts_of.metadata_at, 300)),
        *((f"Level of {name}", str(level)) for name, level in sorted(cluster.features.items())),
    ]


def _health(facts_of: BrokerFacts) -> Element:
    health, metrics, gauges = facts_of.health, facts_of.metrics, facts_of.gauges
    connections = metrics.connections
    rejected = connections.rejected + connections.rejected_per_ip

    def shown(problems: Mapping[str, str], good: str, bad: str) -> Element:
        return badge(bad, "bad") if problems else badge(good, "good")

    return facts(
        [
            ("/healthz", shown(health.liveness_problems, "alive", "not alive")),
            ("/readyz", shown(health.readiness_problems, "ready", "not ready")),
            ("Warnings", badge(f"{len(health.warnings)}", "warn") if health.warnings else "none"),
            ("Partitions offline", units.count(gauges.get(families.PARTITIONS_OFFLINE))),
            ("Unreadable records", units.count(sum(gauges.all(families.RECORDS_UNREADABLE).values()))),
            ("Errors in the background", units.count(sum(metrics.background_failures.copy().values()))),
            ("Connections rejected", units.count(rejected)),
            ("Requests refused", units.count(sum(metrics.frames_refused.copy().values()))),
        ]
    )
