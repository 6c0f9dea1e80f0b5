"""Requests of Kafka clients and their stages; requests to the bucket and what they cost. Pure."""

import heapq
from collections.abc import Iterable
from typing import Final

from kafscale.ops.request_stages import FetchStages, ProduceStages
from kafscale.pages import units
from kafscale.pages.broker_facts import SEC_PER_MONTH, BrokerFacts
from kafscale.pages.figures import Figures, times_of
from kafscale.pages.frame import Asked
from kafscale.pages.markup import Child, Element, element, named_link
from kafscale.pages.parts import bar, card, number, pair, table, text, tile, tiles
from kafscale.pages.store_page import errors_text
from kafscale.pages.topic_pages import window_note
from kafscale.protocol.error_codes import ErrorCode

_TOPICS_SHOWN: Final = 20


def request_page(asked: Asked, facts_of: BrokerFacts, figures: Figures) -> list[Child]:
    """The page."""
    rates = figures.rates
    return [
        element("h1", "Requests"),
        tiles(
            tile("Of clients", units.rate(sum(rates.apis.values())), "Kafka requests"),
            tile("Flushes", units.rate(rates.flushes), "entries of the journal"),
            tile("To the bucket", units.rate(sum(rates.requests.values())), "requests")
            if facts_of.is_priced
            else None,
            _cost_tile(facts_of, figures),
            tile("Spent", units.dollars(sum(figures.totals.dollars.values())), "since the broker's start")
            if facts_of.is_priced
            else None,
        ),
        card("Of Kafka clients", _apis(facts_of, figures), note=f"since the start; {window_note(figures)}"),
        pair(
            card(
                "Where a Produce spends its time",
                _stages(facts_of.metrics.produce_stages),
                note="since the start",
            ),
            card(
                "Where a Fetch spends its time",
                _stages(facts_of.metrics.fetch_stages),
                note="since the start",
            ),
        ),
        *_costs(asked, facts_of, figures),
    ]


def _cost_tile(facts_of: BrokerFacts, figures: Figures) -> Element | None:
    if not facts_of.is_priced:
        return None
    month = sum(figures.rates.dollars.values()) * SEC_PER_MONTH
    budget = facts_of.budget_dollars
    under = f"a month, of {units.dollars(budget)} for all brokers" if budget else "a month, at this rate"
    return tile("Cost", units.dollars(month), under)


def _apis(facts_of: BrokerFacts, figures: Figures) -> Element:
    columns = (
        text("API"),
        number("Requests", wide=True),
        number("Now"),
        number("Mean"),
        number("99 % within", wide=True),
        text("Errors answered", wide=True),
    )
    return table(columns, _api_rows(facts_of, figures), empty="No requests yet.")


def _api_rows(facts_of: BrokerFacts, figures: Figures) -> Iterable[list[Child]]:
    found = [(name, one, times_of(one.duration)) for name, one in list(facts_of.metrics.apis.items())]
    for name, one, times in sorted(found, key=lambda row: -row[2].count):
        errors = {_error(code): count for code, count in one.errors.copy().items()}
        yield [
            name,
            units.count(times.count),
            units.rate(figures.rates.apis.get(name)),
            units.duration(times.mean_sec),
            units.duration(times.p99_sec),
            errors_text(errors),
        ]


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _stages(stages: FetchStages | ProduceStages) -> Element:
    found = [(name, times_of(histogram)) for name, histogram in stages]
    whole = sum(times.total_sec for _, times in found)
    rows = (
        [
            name,
            units.duration(times.mean_sec),
            units.duration(times.p99_sec),
            units.share(times.total_sec, whole),
            bar(times.total_sec, whole, "share of the time"),
        ]
        for name, times in found
        if times.count
    )
    columns = (text("Stage"), number("Mean"), number("99 % within"), number("Share"), text("", wide=True))
    return table(columns, rows, empty="None yet.")


def _costs(asked: Asked, facts_of: BrokerFacts, figures: Figures) -> list[Child]:
    if not facts_of.is_priced:
        records_at = "Records are in a folder: requests cost nothing."
        return [card("To the object store", element("p", records_at, class_="note"))]
    rates, totals = figures.rates, figures.totals
    operations = (
        [
            name,
            units.rate(rates.requests.get(name)),
            units.dollars(rates.dollars.get(name, 0) * SEC_PER_MONTH),
            units.count(count),
            units.dollars(totals.dollars.get(name)),
        ]
        for name, count in sorted(totals.requests.items(), key=lambda item: -rates.dollars.get(item[0], 0))
        if count
    )
    topics = heapq.nlargest(_TOPICS_SHOWN, totals.topic_dollars.items(), key=lambda item: item[1])
    spent = sum(totals.topic_dollars.values())
    by_topic = (
        [
            named_link("/topic", "name", name, refresh=asked.refresh) if not name.startswith("(") else name,
            units.dollars(rates.topic_dollars.get(name, 0) * SEC_PER_MONTH),
            units.dollars(dollars),
            units.share(dollars, spent),
            bar(dollars, spent, "share of the cost"),
        ]
        for name, dollars in topics
    )
    return [
        card(
            "To the bucket, by operation",
            table(
                (
                    text("Operation"),
                    number("Now"),
                    number("A month, at this rate"),
                    number("Since the start", wide=True),
                    number("Cost since the start", wide=True),
                ),
                operations,
                empty="None yet.",
            ),
            note="at the prices of the settings, KAFSCALE_PRICE_*",
        ),
        card(
            "By topic",
            table(
                (
                    text("Topic"),
                    number("A month, at this rate"),
                    number("Since the start", wide=True),
                    number("Share"),
                    text("", wide=True),
                ),
                by_topic,
                empty="None yet.",
            ),
            note="(none): requests that serve no topic",
        ),
    ]
