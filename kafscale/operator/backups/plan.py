"""When the next snapshot of a cluster's metadata store is to be taken. Pure.

One is due once a scheduled time has passed since the newest was taken, so what an operator missed while it did not
run it makes up for, once. The first is due at once. After a failure it is tried again, later each time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kafscale.operator.times import Schedule

FIRST_RETRY_SEC: Final = 15.0
LAST_RETRY_SEC: Final = 600.0

MOST_SKEW: Final = timedelta(minutes=5)
"""So far clocks of operators may differ. One that was taken later than that was taken by a clock that went wrong: to
wait until then would be to take none."""

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRecord:
    """What `status.backup` tells: when a snapshot was last taken and tried, and the newest one's key and measures."""

    last_success: datetime | None = None
    last_attempt: datetime | None = None
    key: str | None = None
    revision: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> "BackupRecord":
        """Out of a cluster's status, which may be empty."""
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
        """As in the status; what is not known is left out."""
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
    """How long from `now` until the next snapshot is to be taken; 0: now."""
    if record.last_success is None or record.last_success < schedule.newest(now):
        return 0.0
    if record.last_success > now + MOST_SKEW:
        return 0.0
    return (schedule.next(now) - now).total_seconds()


def retry_sec(failures: int) -> float:
    """How long to wait after so many failures in a row, at least one."""
    return min(LAST_RETRY_SEC, FIRST_RETRY_SEC * 2.0 ** min(failures - 1, 10))


def time_text(at: datetime) -> str:
    """As in a status: UTC, to the second."""
    return at.strftime(_FORMAT)


def _text(at: datetime | None) -> str | None:
    return None if at is None else time_text(at)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
