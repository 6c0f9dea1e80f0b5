"""The settings of where journals are, when not in the bucket of everything else, and of what is charged there."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.settings.kinds import bucket, choice, http_url, optional_dollars, text
from kafscale.settings.rows import derived, setting


class JournalBucketUse(StrEnum):
    """`WRITE`: new journals begin in the journal bucket. `READ`: only those that are there are read and ended."""

    WRITE = "write"
    READ = "read"


class SingleZone(StrEnum):
    """The treatment of journals that would lie in one zone only."""

    REFUSE = "refuse"
    ACCEPT = "accept"


def is_directory_bucket(name: str) -> bool:
    """True for S3's directory buckets (S3 Express One Zone), which one zone stores: their name says so."""
    return name.endswith("--x-s3") and "://" not in name.removeprefix("s3://")


_PRICE_DEFAULT = "S3 Express One Zone's for a directory bucket, else the bucket's"


@dataclass(frozen=True, kw_only=True)
class JournalSettings:
    """Where journals are; a part of `Settings`. Entries and fences are there, and nothing else."""

    journal_bucket: str | None = derived(
        "KAFSCALE_JOURNAL_BUCKET",
        bucket(),
        "none: journals are in KAFSCALE_S3_BUCKET",
        "The bucket for journals, which every acknowledgement waits for: one with faster or cheaper PUTs, such as a "
        "directory bucket of S3 Express One Zone. Everything else stays in KAFSCALE_S3_BUCKET. All brokers and tools "
        "of a cluster need it; docs/object-store.md says how to begin and to end with it.",
    )
    journal_region: str | None = derived(
        "KAFSCALE_JOURNAL_REGION", text(64), "KAFSCALE_S3_REGION", "The journal bucket's region."
    )
    journal_endpoint: str | None = derived(
        "KAFSCALE_JOURNAL_ENDPOINT",
        http_url(),
        "KAFSCALE_S3_ENDPOINT",
        "The URL of the S3-compatible server that holds the journal bucket.",
    )
    journal_bucket_use: JournalBucketUse = setting(
        "KAFSCALE_JOURNAL_BUCKET_USE",
        choice(JournalBucketUse),
        "write",
        "With `write` new journals begin in KAFSCALE_JOURNAL_BUCKET. With `read` they begin in KAFSCALE_S3_BUCKET, "
        "and those in the journal bucket are still read: for the time in which brokers are restarted one by one, and "
        "before the setting is taken away.",
    )
    journal_single_zone: SingleZone = setting(
        "KAFSCALE_JOURNAL_SINGLE_ZONE",
        choice(SingleZone),
        "refuse",
        "Whether journals may be in a directory bucket, which one zone stores (its name ends in --x-s3). If that "
        "zone is lost, acknowledged records that are not sealed yet are lost: those of up to "
        "KAFSCALE_SEAL_MAX_AGE_MS. `accept` says that this is known.",
    )
    journal_price_per_1000_puts: float | None = derived(
        "KAFSCALE_JOURNAL_PRICE_PER_1000_PUTS",
        optional_dollars(),
        _PRICE_DEFAULT,
        "The price of 1,000 PUT and LIST requests to the journal bucket, in dollars.",
    )
    journal_price_per_1000_gets: float | None = derived(
        "KAFSCALE_JOURNAL_PRICE_PER_1000_GETS",
        optional_dollars(),
        _PRICE_DEFAULT,
        "The price of 1,000 GET requests to the journal bucket, in dollars.",
    )
    journal_price_per_gb_written: float | None = derived(
        "KAFSCALE_JOURNAL_PRICE_PER_GB_WRITTEN",
        optional_dollars(),
        _PRICE_DEFAULT,
        "The price of a GB (2^30 bytes) that is sent to the journal bucket, in dollars.",
    )
    journal_price_per_gb_read: float | None = derived(
        "KAFSCALE_JOURNAL_PRICE_PER_GB_READ",
        optional_dollars(),
        _PRICE_DEFAULT,
        "The price of a GB (2^30 bytes) that is read from the journal bucket, in dollars.",
    )
