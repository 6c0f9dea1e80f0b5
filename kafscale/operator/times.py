"""Times as resources write them: durations (500ms, 90s, 15m, 24h, 7d) and cron schedules in UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from croniter import croniter

from kafscale.operator.errors import SpecError

_SECOND: Final = timedelta(seconds=1)
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")


def duration_ms(field: str, text: str) -> int:
    """Parses a duration to milliseconds. Raises `SpecError`, which names the field."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SpecError(f"{field}={text!r} is not a duration: a number and ms, s, m, h or d, such as 24h")
    return int(match[1]) * _UNITS_MS[match[2]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Five cron fields, or a word such as @hourly. Arguments must be aware; results are UTC."""

    text: str

    @classmethod
    def parse(cls, field: str, text: str) -> "Schedule":
        """Raises `SpecError`, which names the field, for an invalid schedule or one that never fires."""
        try:
            croniter(text, datetime(2024, 1, 1)).get_next(datetime)
        except ValueError as problem:
            raise SpecError(
                f"{field} {text!r} is not legal ({problem}): it must be a cron schedule of five fields in UTC, "
                "such as 30 2 * * *, or @hourly, @daily, @weekly, @monthly"
            ) from problem
        return cls(text)

    def newest(self, now: datetime) -> datetime:
        """The newest scheduled time that is not after `now`."""
        found: datetime = croniter(self.text, now.replace(microsecond=0) + _SECOND).get_prev(datetime)
        return found

    def next(self, now: datetime) -> datetime:
        """The first scheduled time after `now`."""
        found: datetime = croniter(self.text, now).get_next(datetime)
        return found


def utc_now() -> datetime:
    """The time of day, aware."""
    return datetime.now(UTC)
