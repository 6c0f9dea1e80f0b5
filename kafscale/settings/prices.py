"""The settings of what the object store's provider charges."""

from dataclasses import dataclass

from kafscale.settings.kinds import dollars, optional_dollars
from kafscale.settings.rows import derived, setting


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """US dollars for requests, bytes and storage, and a budget; a part of `Settings`.

    Metrics and `kafscale cost` use them. The defaults are those of Amazon S3 Standard in us-east-1; docs/cost.md has
    others, with their sources.
    """

    price_per_1000_puts: float = setting(
        "KAFSCALE_PRICE_PER_1000_PUTS",
        dollars(),
        "0.005",
        "The price of 1,000 PUT, COPY, POST and LIST requests to the bucket, in dollars; docs/cost.md lists some "
        "providers' prices.",
    )
    price_per_1000_gets: float = setting(
        "KAFSCALE_PRICE_PER_1000_GETS",
        dollars(),
        "0.0004",
        "The price of 1,000 GET and HEAD requests, in dollars. DELETE and the end of an upload cost nothing.",
    )
    price_per_gb_written: float = setting(
        "KAFSCALE_PRICE_PER_GB_WRITTEN",
        dollars(),
        "0",
        "The price of a GB (2^30 bytes) that is sent to the bucket, in dollars.",
    )
    price_per_gb_read: float = setting(
        "KAFSCALE_PRICE_PER_GB_READ",
        dollars(),
        "0",
        "The price of a GB (2^30 bytes) that is read from the bucket: retrieval and transfer, in dollars.",
    )
    price_per_gb_month: float = setting(
        "KAFSCALE_PRICE_PER_GB_MONTH",
        dollars(),
        "0.023",
        "The price of a GB (2^30 bytes) that is stored for a month, in dollars.",
    )
    cost_budget_per_month: float | None = derived(
        "KAFSCALE_COST_BUDGET_PER_MONTH",
        optional_dollars(),
        "none: no alert",
        "What the cluster's requests and storage may cost in a month, in dollars: an alert, KafscaleCostAboveBudget, "
        "fires when they would cost more at the rates of the last hour. Nothing is slowed down.",
    )
