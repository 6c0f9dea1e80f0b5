"""The list of topics and the page of one topic. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kafscale.log.led_partitions import StoredTopic
from kafscale.pages import units
from kafscale.pages.figures import Figures, LagTotal, lag_totals
from kafscale.pages.frame import Asked
from kafscale.pages.markup import Child, Element, address, element, link, name_of, named_link
from kafscale.pages.parts import (
    ROWS_PER_PAGE,
    Column,
    badge,
    card,
    facts,
    first_row,
    number,
    pages,
    table,
    text,
    tile,
    tiles,
)
from kafscale.pages.rates import NO_COUNTS
from kafscale.pages.snapshots import PartitionSnapshot, TopicLeaders, TopicSnapshot

NOTHING_STORED: Final = StoredTopic(0, 0, 0, 0, 0)
NO_LAG: Final = LagTotal(0, 0, 0)

_READERS_SHOWN: Final = 20

_ORDERS: Final[Mapping[str, Callable[[Figures, str], float]]] = {
    "in": lambda figures, name: figures.rates.topics.get(name, NO_COUNTS).bytes_in,
    "out": lambda figures, name: figures.rates.topics.get(name, NO_COUNTS).bytes_out,
    "records": lambda figures, name: figures.stored.get(name, NOTHING_STORED).offsets,
    "size": lambda figures, name: figures.stored.get(name, NOTHING_STORED).size_bytes,
    "lag": lambda figures, name: (
        NO_LAG.lag if figures.lag is None else figures.lag.by_topic.get(name, NO_LAG).lag
    ),
}


def selected_topics(asked: Asked, figures: Figures) -> Sequence[str]:
    """The names with the text that was asked for, in the order that was asked for: by name, or largest first."""
    names = [name for name in figures.topics if asked.find in name]
    order = _ORDERS.get(asked.sort)
    if order is not None:
        names.sort(key=lambda name: -order(figures, name))
    return names


def rows_of_page(names: Sequence[str], page: int) -> Sequence[str]:
    """The names on that page of a list."""
    start = first_row(page, len(names))
    return names[start : start + ROWS_PER_PAGE]


def topics_page(
    asked: Asked, figures: Figures, names: Sequence[str], leaders: Mapping[str, TopicLeaders]
) -> list[Child]:
    """The list. `names`: all that are selected; `leaders`: of those on this page."""
    shown = rows_of_page(names, asked.page)
    count = f"{len(names):,} of {len(figures.topics):,}" if asked.find else f"{len(figures.topics):,}"
    return [
        element("h1", "Topics"),
        find_form(asked, "Part of a topic's name"),
        card(
            count,
            topic_table(figures, shown, leaders, asked),
            pages(
                "/topics",
                asked.page,
                len(names),
                "topics",
                find=asked.find or None,
                sort=asked.sort or None,
                refresh=asked.refresh,
            ),
            note=window_note(figures),
        ),
    ]


def window_note(figures: Figures) -> str:
    """Over which time rates were measured."""
    return f"rates of the last {max(1, round(figures.rates.window_sec))} s, at this broker"


def find_form(asked: Asked, label: str) -> Element:
    """A field to search names with."""
    return element(
        "form",
        element(
            "input",
            type="search",
            name="find",
            value=asked.find[:200],
            placeholder=label,
            aria_label=label,
            maxlength="200",
        ),
        element("input", type="hidden", name="refresh", value=asked.refresh) if asked.refresh else None,
        element("button", "Find", type="submit"),
        method="get",
        action=asked.path,
    )


def topic_table(
    figures: Figures,
    names: Sequence[str],
    leaders: Mapping[str, TopicLeaders],
    asked: Asked | None = None,
) -> Element:
    """Topics with their rates; headings sort where `asked` says which page this is."""
    columns = (
        _sortable(asked, "Topic", "", is_number=False),
        number("Partitions", wide=True),
        _sortable(asked, "In", "in"),
        _sortable(asked, "Out", "out"),
        number("Records in", wide=True),
        number("Records out", wide=True),
        _sortable(asked, "Records", "records", wide=True),
        _sortable(asked, "Stored", "size", wide=True),
        _sortable(asked, "Lag", "lag"),
    )
    refresh = None if asked is None else asked.refresh
    rows = [_row(figures, name, leaders.get(name), refresh) for name in names]
    return table(columns, rows, empty="There is no such topic." if asked and asked.find else "No topics yet.")


def _sortable(
    asked: Asked | None, title: str, order: str, *, is_number: bool = True, wide: bool = False
) -> Column:
    if asked is None:
        return Column(title=title, is_number=is_number, is_wide=wide)
    target = address("/topics", find=asked.find or None, sort=order or None, refresh=asked.refresh)
    sorted_by = asked.sort if asked.sort in _ORDERS else ""
    return Column(title=title, is_number=is_number, is_wide=wide, sort=target, is_sorted=sorted_by == order)


def _row(figures: Figures, name: str, leaders: TopicLeaders | None, refresh: str | None) -> list[Child]:
    rates = figures.rates.topics.get(name, NO_COUNTS)
    stored = figures.stored.get(name)
    return [
        named_link("/topic", "name", name, refresh=refresh),
        _partition_count(leaders),
        units.size_rate(rates.bytes_in),
        units.size_rate(rates.bytes_out),
        units.rate(rates.records_in),
        units.rate(rates.records_out),
        units.count(None if stored is None else stored.offsets),
        units.size(None if stored is None else stored.size_bytes),
        lag_text(figures, name),
    ]


def _partition_count(leaders: TopicLeaders | None) -> Child:
    if leaders is None:
        return units.NOT_KNOWN
    if leaders.is_deleting:
        return badge("is being deleted", "warn")
    offline = leaders.partition_count - leaders.led_anywhere
    total = units.count(leaders.partition_count)
    return (
        total if offline <= 0 else element("span", f"{total}, {units.count(offline)} offline", class_="bad")
    )


def lag_text(figures: Figures, topic: str) -> str:
    """The lag of all groups in a topic."""
    return lag_of(None if figures.lag is None else figures.lag.by_topic.get(topic))


def lag_of(total: LagTotal | None) -> str:
    """A total as far as it is known."""
    if total is None or total.unknown == total.partitions:
        return units.NOT_KNOWN
    return (
        units.count(total.lag)
        if not total.unknown
        else f"\N{GREATER-THAN OR EQUAL TO} {units.count(total.lag)}"
    )


def topic_page(
    asked: Asked, figures: Figures, state: TopicSnapshot, month_dollars: float | None
) -> list[Child]:
    """One topic. `month_dollars`: what its requests cost in a month at the present rate, None if nothing costs."""
    rates = figures.rates.topics.get(state.name, NO_COUNTS)
    stored = figures.stored.get(state.name, NOTHING_STORED)
    cost = (
        None
        if month_dollars is None
        else tile("Requests", units.dollars(month_dollars), "a month, at this rate")
    )
    return [
        element(
            "h1",
            "Topic ",
            name_of(state.name, 249),
            " " if state.is_deleting else None,
            badge("is being deleted", "warn") if state.is_deleting else None,
        ),
        tiles(
            tile("In", units.size_rate(rates.bytes_in), units.record_rate(rates.records_in)),
            tile("Out", units.size_rate(rates.bytes_out), units.record_rate(rates.records_out)),
            tile(
                "Stored", units.size(stored.size_bytes), f"{units.count(stored.segments)} segments and slices"
            ),
            tile("Records", units.count(stored.offsets), "from log start to log end"),
            tile("Lag", lag_text(figures, state.name), "of all groups"),
            cost,
        ),
        card(
            "Partitions",
            table(
                (
                    text("Partition"),
                    text("Leader"),
                    number("Epoch", wide=True),
                    number("Log start", wide=True),
                    number("Log end"),
                    number("Records"),
                    number("Segments", wide=True),
                    number("Stored"),
                ),
                map(_partition_row, state.partitions),
                empty="No partitions.",
            ),
            pages(
                "/topic",
                asked.page,
                state.partition_count,
                "partitions",
                name=state.name,
                refresh=asked.refresh,
            ),
            note=f"{units.count(state.partition_count)} in all, {units.count(stored.partitions)} led here: of the "
            "others this broker knows the leader, and more where it reads for consumers",
        ),
        _readers(figures, state.name, asked),
        card(
            "Configs",
            facts(
                [
                    ("Topic id", str(state.topic_id)),
                    *(
                        (key, element("code", name_of(value, 300)))
                        for key, value in sorted(state.configs.items())
                    ),
                ]
            ),
            note=None if state.configs else "all defaults",
        ),
    ]


def _partition_row(state: PartitionSnapshot) -> list[Child]:
    start, end = state.log_start_offset, state.log_end_offset
    return [
        str(state.index),
        badge("no leader", "bad")
        if state.leader is None
        else f"broker {state.leader}{' (here)' if state.is_led_here else ''}",
        units.count(state.leader_epoch),
        units.count(start),
        units.count(end),
        units.count(None if start is None or end is None else end - start),
        units.count(state.segments),
        units.size(state.size_bytes),
    ]


def _readers(figures: Figures, topic: str, asked: Asked) -> Element:
    """The groups that have committed offsets of the topic."""
    found = lag_totals(
        (row.group_id, row) for row in (() if figures.lag is None else figures.lag.rows) if row.topic == topic
    )
    most = sorted(found.items(), key=lambda item: (-item[1].lag, item[0]))[:_READERS_SHOWN]
    rows: Iterable[list[Child]] = (
        [
            named_link("/group", "name", group_id, refresh=asked.refresh),
            units.count(total.partitions),
            lag_of(total),
        ]
        for group_id, total in most
    )
    more = len(found) - len(most)
    return card(
        "Groups",
        table((text("Group"), number("Partitions"), number("Lag")), rows, empty="No committed offsets here."),
        element("p", link("/groups", f"{more:,} more groups"), class_="more") if more > 0 else None,
        note="that this broker coordinates, most lag first",
    )
