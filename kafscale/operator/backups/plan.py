"""Plans when the next snapshot of a cluster's metadata store is due. Pure.

A snapshot is due once a scheduled time has passed since the newest one, so a missed time is made up for, once. The
first is due immediately. A failed one is retried with backoff.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kafscale.operator.times import Schedule

FIRST_RETRY_SEC: Final = 15.0
LAST_RETRY_SEC: Final = 600.0

MOST_SKEW: Final = timedelta(minutes=5)
"""Clock skew between operators. A snapshot from further in the future is ignored: a wrong clock took it."""

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRecord:
    """`status.backup`: times of the last success and attempt, and the newest snapshot's key and measures."""

    last_success: datetime | None = None
    last_attempt: datetime | None = None
    key: str | None = None
    revision: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> "BackupRecord":
        """Parses a cluster's status, which may be empty."""
        found = status.get("backup", {})
        return cls(
            last_success=_time(found.get("lastSuccessTime")),
            last_attempt=_time(found.get("lastAttemptTime")),
            key=found.get("key"),
            revision=found.get("revision"),
            size_bytes=found.get("sizeBytes"),
            sha256=found.get("sha256"),
        )

    def as_map(self) -> dict[str, Any]:
        """The fields in the status, without unknown ones."""
        fields = {
            "lastSuccessTime": _text(self.last_success),
            "lastAttemptTime": _text(self.last_attempt),
            "key": self.key,
            "revision": self.revision,
            "sizeBytes": self.size_bytes,
            "sha256": self.sha256,
        }
        return {name: value for name, value in fields.items() if value is not None}


def seconds_until_due(schedule: Schedule, record: BackupRecord, now: datetime) -> float:
    """Seconds from `now` until the next snapshot is due; 0: now."""
    if record.last_success is None or record.last_success < schedule.newest(now):
        return 0.0
    if record.last_success > now + MOST_SKEW:
        return 0.0
    return (schedule.next(now) - now).total_seconds()


def retry_sec(failures: int) -> float:
    """Wait after `failures` (at least one) failures in a row."""
    return min(LAST_RETRY_SEC, FIRST_RETRY_SEC * 2.0 ** min(failures - 1, 10))


def time_text(at: datetime) -> str:
    """UTC, to the second, as in a status."""
    return at.strftime(_FORMAT)


def _text(at: datetime | None) -> str | None:
    return None if at is None else time_text(at)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
