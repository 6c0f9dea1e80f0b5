"""The time of day."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(UTC)
