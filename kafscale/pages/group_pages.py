"""The list of groups, of consumers and of shares, and the page of one group. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from kafscale.groups.assignments import assigned_partitions
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.pages import units
from kafscale.pages.figures import Figures, LagRow, LagTotal
from kafscale.pages.frame import Asked
from kafscale.pages.markup import Child, Element, address, element, link, name_of, named_link
from kafscale.pages.parts import (
    ROWS_PER_PAGE,
    Column,
    alert,
    badge,
    bar,
    card,
    first_row,
    number,
    pages,
    table,
    text,
    tile,
    tiles,
)
from kafscale.pages.snapshots import GroupElsewhere, GroupSnapshot, GroupSummary
from kafscale.pages.topic_pages import find_form, lag_of

_KINDS: Final = {
    GroupState.STABLE.value: "good",
    GroupState.PREPARING_REBALANCE.value: "warn",
    GroupState.COMPLETING_REBALANCE.value: "warn",
    GroupState.ASSIGNING.value: "warn",
    GroupState.RECONCILING.value: "warn",
}
_RANGES_SHOWN: Final = 12
_TOPICS_SHOWN: Final = 8
LAG_SETTING: Final = "KAFSCALE_CONSUMER_LAG_MAX_SERIES"


def selected_groups(asked: Asked, figures: Figures) -> Sequence[str]:
    """The ids with the text that was asked for, by id or with the largest lag first."""
    found = [group_id for group_id in figures.group_ids if asked.find in group_id]
    if asked.sort == "lag" and figures.lag is not None:
        totals = figures.lag.by_group
        found.sort(key=lambda group_id: -totals[group_id].lag if group_id in totals else 1)
    return found


def groups_page(
    asked: Asked, figures: Figures, group_ids: Sequence[str], summaries: Mapping[str, GroupSummary]
) -> list[Child]:
    """The list. `group_ids`: all that are selected; `summaries`: of those on this page."""
    start = first_row(asked.page, len(group_ids))
    shown = group_ids[start : start + ROWS_PER_PAGE]
    total = f"{len(figures.group_ids):,}"
    return [
        element("h1", "Groups"),
        find_form(asked, "Part of a group's id"),
        omitted_note(figures),
        card(
            f"{len(group_ids):,} of {total}" if asked.find else total,
            group_table(figures, [summaries[one] for one in shown if one in summaries], asked),
            pages(
                "/groups",
                asked.page,
                len(group_ids),
                "groups",
                find=asked.find or None,
                sort=asked.sort or None,
                refresh=asked.refresh,
            ),
            note="that this broker coordinates; each broker has its share of all groups",
        ),
    ]


def omitted_note(figures: Figures) -> Child:
    """A warning where lag is not followed for all partitions."""
    if figures.lag is None:
        return alert("warn", f"Lag is switched off: {LAG_SETTING}=0.")
    if figures.lag.omitted:
        return alert(
            "warn",
            f"The lag of {figures.lag.omitted:,} partitions of groups or more is not followed, and is missing here: "
            f"raise {LAG_SETTING} ({len(figures.lag.rows):,} are).",
        )
    return None


def group_table(figures: Figures, groups: Sequence[GroupSummary], asked: Asked | None = None) -> Element:
    """Groups with their lag; headings sort where `asked` says which page this is."""
    totals: Mapping[str, LagTotal] = {} if figures.lag is None else figures.lag.by_group
    most = max((totals[one.group_id].lag for one in groups if one.group_id in totals), default=0)
    refresh = None if asked is None else asked.refresh
    columns = (
        _heading(asked, "Group", ""),
        text("State"),
        text("Type", wide=True),
        text("Protocol", wide=True),
        number("Members"),
        number("Partitions", wide=True),
        _heading(asked, "Lag", "lag"),
        text("", wide=True),
    )
    rows = (
        [
            named_link("/group", "name", one.group_id, refresh=refresh),
            state_badge(one.state),
            one.group_type,
            name_of(one.protocol_type, 40) if one.protocol_type else units.NOT_KNOWN,
            units.count(one.members),
            units.count(totals[one.group_id].partitions if one.group_id in totals else None),
            lag_of(totals.get(one.group_id)),
            bar(totals[one.group_id].lag, most, "share of the largest lag")
            if one.group_id in totals
            else None,
        ]
        for one in groups
    )
    return table(
        columns, rows, empty="There is no such group." if asked and asked.find else "No groups here."
    )


def _heading(asked: Asked | None, title: str, order: str) -> Column:
    is_number = bool(order)
    if asked is None:
        return Column(title=title, is_number=is_number)
    target = address("/groups", find=asked.find or None, sort=order or None, refresh=asked.refresh)
    is_sorted = (asked.sort if asked.sort == "lag" else "") == order
    return Column(title=title, is_number=is_number, sort=target, is_sorted=is_sorted)


def state_badge(state: str) -> Element:
    """A group's state."""
    return badge(state, _KINDS.get(state, ""))


def group_page(asked: Asked, figures: Figures, state: GroupSnapshot) -> list[Child]:
    """One group: its members, and its lag by partition. Both are divided into pages by the same number."""
    summary = state.summary
    rows = sorted(
        (row for row in (figures.lag.rows if figures.lag else ()) if row.group_id == summary.group_id),
        key=lambda row: (row.topic, row.partition),
    )
    total = None if figures.lag is None else figures.lag.by_group.get(summary.group_id)
    longest = max(len(rows), summary.members)
    start = (asked.page - 1) * ROWS_PER_PAGE
    return [
        element("h1", "Group ", name_of(summary.group_id, 249)),
        omitted_note(figures),
        tiles(
            tile("State", state_badge(summary.state), _generation(state)),
            tile("Members", units.count(summary.members), name_of(state.protocol_name or "no assignor", 60)),
            tile("Lag", lag_of(total), f"in {units.things(len(rows), 'partition')}"),
        ),
        _members(state, f"{units.count(summary.members)} in all"),
        (_shared_card if summary.group_type == ShareGroup.GROUP_TYPE else _lag_card)(
            rows[start : start + ROWS_PER_PAGE], len(rows), asked
        ),
        pages(
            "/group",
            asked.page,
            longest,
            "members or partitions",
            name=summary.group_id,
            refresh=asked.refresh,
        ),
    ]


def _generation(state: GroupSnapshot) -> str:
    if state.summary.group_type in (ConsumerGroup.GROUP_TYPE, ShareGroup.GROUP_TYPE):
        return f"epoch {state.generation}, {state.summary.group_type} protocol"
    return f"generation {state.generation}"


def _members(state: GroupSnapshot, note: str) -> Element:
    columns = (text("Member"), text("Client id", wide=True), text("Host"), text("Assigned"))
    rows = (
        [
            element(
                "span",
                name_of(member.group_instance_id or member.member_id),
                " " if member.member_id == state.leader else None,
                badge("leader") if member.member_id == state.leader else None,
                element("div", "static member", class_="soft") if member.group_instance_id else None,
                element("div", member.progress, class_="soft") if member.progress else None,
            ),
            name_of(member.client_id),
            name_of(member.client_host),
            _assigned(state.summary.protocol_type, member.assignment),
        ]
        for member in state.members
    )
    return card("Members", table(columns, rows, empty="No members on this page."), note=note)


def _assigned(protocol_type: str, assignment: bytes | Mapping[str, Sequence[int]]) -> Child:
    """The partitions of an assignment, the first of them by name."""
    found: Mapping[str, Sequence[int]] | None = None
    if not isinstance(assignment, bytes):
        found = assignment
    elif protocol_type == "consumer":
        found = assigned_partitions(assignment)
    if found is None:
        return f"{units.size(len(assignment))} of another protocol" if assignment else units.NOT_KNOWN
    if not any(found.values()):
        return "nothing"
    lines = [
        element("div", name_of(topic, 60), f": {ranges(indexes)}")
        for topic, indexes in islice(sorted(found.items()), _TOPICS_SHOWN)
    ]
    more = len(found) - len(lines)
    return element(
        "div", *lines, element("div", f"and {more:,} more topics", class_="soft") if more > 0 else None
    )


def ranges(indexes: Iterable[int]) -> str:
    """`0-3, 7`: the first ones, and how many there are in all where that is not all."""
    found: list[tuple[int, int]] = []
    ordered = sorted(indexes)
    for index in ordered:
        if found and index <= found[-1][1] + 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    shown = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found[:_RANGES_SHOWN])
    return shown if len(found) <= _RANGES_SHOWN else f"{shown}, ... ({len(ordered):,} in all)"


def _lag_card(rows: Sequence[LagRow], total: int, asked: Asked) -> Element:
    most = max((row.lag or 0 for row in rows), default=0)
    columns = (
        text("Topic"),
        number("Partition"),
        number("Committed", wide=True),
        number("Log end"),
        number("Lag"),
        text("", wide=True),
    )
    cells = (
        [
            named_link("/topic", "name", row.topic, refresh=asked.refresh),
            str(row.partition),
            units.count(row.committed_offset),
            units.count(row.log_end_offset),
            units.count(row.lag),
            None if row.lag is None else bar(row.lag, most, "share of the largest lag"),
        ]
        for row in rows
    )
    return card(
        "Lag by partition",
        table(columns, cells, empty="No committed offsets on this page."),
        note=f"{units.count(total)} in all; log ends of partitions led elsewhere may be some minutes old",
    )


def _shared_card(rows: Sequence[LagRow], total: int, asked: Asked) -> Element:
    """The same of a share group."""
    most = max((row.lag or 0 for row in rows), default=0)
    columns = (
        text("Topic"),
        number("Partition"),
        number("Start offset", wide=True),
        number("Finished after it", wide=True),
        number("of these archived", wide=True),
        number("Log end"),
        number("Lag"),
        text("", wide=True),
    )
    cells = (
        [
            named_link("/topic", "name", row.topic, refresh=asked.refresh),
            str(row.partition),
            units.count(None if row.committed_offset < 0 else row.committed_offset),
            units.count(None if row.shared is None else row.shared.finished),
            units.count(None if row.shared is None else row.shared.archived),
            units.count(row.log_end_offset),
            units.count(row.lag),
            None if row.lag is None else bar(row.lag, most, "share of the largest lag"),
        ]
        for row in rows
    )
    return card(
        "Lag by partition",
        table(columns, cells, empty="No partitions on this page."),
        note=f"{units.count(total)} in all, read every 30 s; an offset is known after the first fetch of a partition",
    )


def group_elsewhere_page(group_id: str, found: GroupElsewhere, endpoints: Mapping[int, str]) -> list[Child]:
    """A group that another broker coordinates. `endpoints`: where brokers are, by id."""
    coordinator = found.coordinator
    if coordinator is None:
        where = "It has no coordinator at the moment."
    else:
        at = f" at {endpoints[coordinator]}" if coordinator in endpoints else ""
        where = f"Broker {coordinator}{at} coordinates it: its page shows the group."
    return [
        element("h1", "Group ", name_of(group_id, 249)),
        alert("warn", f"{where} ({found.reason})"),
        element("p", link("/groups", "The groups of this broker")),
    ]
