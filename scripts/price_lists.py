"""Public price lists for docs/cost.md: what the settings of prices are at some providers, and what it comes to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kafscale.ops.prices import DAYS_PER_MONTH, EXPRESS_ONE_ZONE, Prices
from scripts import sizing

READ: Final = "2026-11-23"
"""When the sources were read; they are stored copies, some of them older than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """One row. `source`: where the prices were read, in Markdown."""

    store: str
    prices: Prices
    source: str


PRICE_LISTS: Final = (
    PriceList(
        store="Amazon S3 Standard, us-east-1 (the default)",
        prices=Prices(),
        source="secondary: [dev.to](https://dev.to/sh20raj/aws-s3-pricing-for-beginners-3fc2) for requests, "
        "[gist](https://gist.github.com/EverettBerry/a37438006529a55f42da6fdbc44a505c) for storage",
    ),
    PriceList(
        store="Amazon S3 Express One Zone, us-east-1",
        prices=EXPRESS_ONE_ZONE,
        source="[S3 FAQs](https://aws.amazon.com/s3/faqs/), example of S3 Express One Zone",
    ),
    PriceList(
        store="Google Cloud Storage, Standard, us-east1",
        prices=Prices(per_1000_puts=0.005, per_1000_gets=0.0004, per_gb_month=0.020),
        source="[pricing examples](https://cloud.google.com/storage/pricing-examples)",
    ),
    PriceList(
        store="Cloudflare R2, Standard",
        prices=Prices(per_1000_puts=0.0045, per_1000_gets=0.00036, per_gb_month=0.015),
        source="[R2 pricing](https://developers.cloudflare.com/r2/pricing/)",
    ),
    PriceList(
        store="MinIO, Ceph and others of your own",
        prices=Prices(per_1000_puts=0, per_1000_gets=0, per_gb_month=0),
        source="no price list: set what your disks cost",
    ),
)


PRICE_COLUMNS: Final = (
    "Store",
    "1,000 PUTs",
    "1,000 GETs",
    "GB written",
    "GB read",
    "GB a month",
    "1,000 partitions, dollars a month",
    "Source",
)


def price_rows() -> Iterator[tuple[str, ...]]:
    """The settings for each store, and what a cluster's requests and their bytes cost in a month."""
    load = sizing.Load(partitions=1000, batches_per_sec=1, bytes_per_sec=100)
    calls = sizing.calls_in_a_day(load)
    for one in PRICE_LISTS:
        prices = one.prices
        # Bytes are written in entries, gathered objects, segments and merged ones, and read for the last.
        bytes_a_day = load.partitions * load.bytes_per_sec * sizing.SECONDS_PER_DAY
        moved = (4 * prices.of_written(bytes_a_day) + prices.of_read(bytes_a_day)) * DAYS_PER_MONTH
        yield (
            one.store,
            _plain(prices.per_1000_puts),
            _plain(prices.per_1000_gets),
            _plain(prices.per_gb_written),
            _plain(prices.per_gb_read),
            _plain(prices.per_gb_month),
            f"{calls.dollars_a_month(prices) + moved:,.2f}",
            one.source,
        )


def _plain(dollars: float) -> str:
    """A number without an exponent."""
    return f"{dollars:.6f}".rstrip("0").rstrip(".")
