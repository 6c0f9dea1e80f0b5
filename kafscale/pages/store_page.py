"""The contents of the stores, what waits to be sealed, merged or collected, and how the stores answer. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from kafscale.ops import journal_metric_families as journals
from kafscale.ops import metric_families as families
from kafscale.ops.metrics import OperationMetrics
from kafscale.pages import units
from kafscale.pages.broker_facts import BrokerFacts
from kafscale.pages.figures import Figures, times_of
from kafscale.pages.markup import Child, Element, element, name_of
from kafscale.pages.parts import badge, bar, card, facts, number, pair, table, text, tile, tiles

_STORE_HEALTH: Final = (("healthy", "good"), ("degraded", "warn"), ("unavailable", "bad"))
_ERRORS_SHOWN: Final = 4


def store_page(facts_of: BrokerFacts, figures: Figures) -> list[Child]:
    """The page."""
    metrics, gauges = facts_of.metrics, facts_of.gauges
    stored = figures.stored.values()
    partitions, loaded = sum(one.partitions for one in stored), sum(one.loaded for one in stored)
    return [
        element("h1", "Stores"),
        tiles(
            tile(
                "Records",
                units.count(sum(one.offsets for one in stored)),
                f"in {units.things(partitions, 'partition')}",
            ),
            tile("Stored", units.size(sum(one.size_bytes for one in stored)), "published, led here"),
            tile("Segments", units.count(sum(one.segments for one in stored)), "and slices, led here"),
            tile(
                "To be sealed",
                units.size(gauges.get(journals.SEAL_DEBT_BYTES)),
                units.things(gauges.get(journals.SEAL_DEBT_SLICES), "slice"),
            ),
            tile(
                "To be merged",
                units.size(gauges.get(families.MERGE_DEBT_BYTES)),
                units.things(gauges.get(families.MERGE_DEBT_SEGMENTS), "segment"),
            ),
            tile(
                "Journal",
                units.count(gauges.get(journals.STORED_ENTRIES)),
                f"entries, {units.count(gauges.get(journals.ENTRIES_IN_FLIGHT))} in flight",
            ),
        ),
        element(
            "p",
            f"{units.count(partitions - loaded)} partitions are not loaded yet: what their checkpoints name is "
            "not counted.",
            class_="note",
        )
        if loaded < partitions
        else None,
        pair(
            card("Where", facts(_places(facts_of))),
            card("Journal and debts", facts(_debts(facts_of, figures))),
        ),
        card(
            "Object store",
            _operations(metrics.object_store_operations, facts_of, with_bytes=True),
            note=_health_note(facts_of),
        ),
        card("Metadata store", _operations(metrics.metadata_store_operations, facts_of, with_bytes=False)),
        card(
            "Memory",
            table(
                (text("What"), number("Used"), number("Limit"), text("")), _memory(facts_of), empty="Nothing."
            ),
        ),
    ]


def _places(facts_of: BrokerFacts) -> list[tuple[str, Child]]:
    gauges = facts_of.gauges
    offsets, records = (
        gauges.get(families.GROUPS_STORED, "offsets"),
        gauges.get(families.GROUPS_STORED, "records"),
    )
    groups = None if offsets is None or records is None else offsets + records
    limit = gauges.get(families.GROUPS_STORED_LIMIT)
    silent = gauges.get(families.METADATA_STORE_SILENT)
    return [
        ("Records", name_of(facts_of.records_at, 300)),
        ("Metadata", name_of(facts_of.metadata_at, 300)),
        ("Groups and offsets", f"{units.size(groups)} of {units.size(limit)} in the metadata store"),
        (
            "Metadata store answered",
            f"{units.duration(silent)} ago" if silent is not None else units.NOT_KNOWN,
        ),
    ]


def _debts(facts_of: BrokerFacts, figures: Figures) -> list[tuple[str, Child]]:
    gauges, metrics = facts_of.gauges, facts_of.metrics
    return [
        (
            "Flushes",
            f"{units.rate(figures.rates.flushes)}, budget {units.count(gauges.get(families.FLUSH_BUDGET))} a second",
        ),
        ("Entries that the metadata store does not show yet", units.count(gauges.get(journals.PROGRESS_LAG))),
        ("Oldest slice that is not sealed", units.duration(gauges.get(journals.SEAL_DEBT_AGE))),
        ("Oldest merge that waits", units.duration(gauges.get(families.MERGE_DEBT_AGE))),
        ("Collection is late by", units.duration(gauges.get(journals.COLLECTION_LATE))),
        (
            "Collected since the start",
            f"{units.count(metrics.journal.collected)} objects of journals, "
            f"{units.count(metrics.garbage_removed)} orphans",
        ),
        ("Expired since the start", f"{units.count(sum(metrics.segments_expired.copy().values()))} segments"),
    ]


def _health_note(facts_of: BrokerFacts) -> Element:
    shown: list[Child] = []
    for (calls,), value in facts_of.gauges.all(families.OBJECT_STORE_HEALTH).items():
        label, kind = _STORE_HEALTH[min(int(value), len(_STORE_HEALTH) - 1)]
        shown += [f" {calls} ", badge(label, kind)]
    return element("span", *shown)


def _operations(
    operations: Mapping[str, OperationMetrics], facts_of: BrokerFacts, *, with_bytes: bool
) -> Element:
    columns = [
        text("Operation"),
        number("Calls"),
        number("A second", wide=True),
        number("Mean"),
        number("99 % within"),
        number("Bytes", wide=True),
        text("Errors"),
    ]
    if not with_bytes:
        columns.pop(5)
    return table(columns, _operation_rows(operations, facts_of, with_bytes=with_bytes), empty="No calls yet.")


def _operation_rows(
    operations: Mapping[str, OperationMetrics], facts_of: BrokerFacts, *, with_bytes: bool
) -> Iterable[list[Child]]:
    for name, one in sorted(operations.items()):
        times = times_of(one.duration)
        if not times.count:
            continue
        size: list[Child] = [units.size(getattr(one, "bytes", None))] if with_bytes else []
        yield [
            name,
            units.count(times.count),
            units.rate(times.count / max(facts_of.up_sec, 1)),
            units.duration(times.mean_sec),
            units.duration(times.p99_sec),
            *size,
            errors_text(one.errors.copy()),
        ]


def errors_text(errors: Mapping[str, int]) -> Child:
    """The most frequent errors with their numbers."""
    most = sorted(errors.items(), key=lambda item: -item[1])[:_ERRORS_SHOWN]
    shown = ", ".join(f"{name} {units.count(count)}" for name, count in most)
    return shown + (" ..." if len(errors) > len(most) else "") if shown else units.NOT_KNOWN


def _memory(facts_of: BrokerFacts) -> Iterable[list[Child]]:
    gauges = facts_of.gauges
    rows: list[tuple[str, float | None, float | None]] = [
        ("Produce buffer", gauges.get(families.BUFFER_USED), gauges.get(families.BUFFER_LIMIT)),
        ("Groups", gauges.get(families.GROUP_MEMORY_USED), gauges.get(families.GROUP_MEMORY_LIMIT)),
    ]
    limits = gauges.all(families.CACHE_LIMIT)
    caches = sorted(gauges.all(families.CACHE_USED).items())
    rows += [(f"Cache: {cache}", used, limits.get((cache,))) for (cache,), used in caches]
    for name, used, limit in rows:
        yield [name, units.size(used), units.size(limit), bar(used or 0, limit or 0, "share of the limit")]
