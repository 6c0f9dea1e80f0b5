"""Cron schedules, in UTC. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from croniter import croniter

from kafscale.operator.errors import SpecError

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Five fields of cron, or a word such as @hourly. Times must be aware, and are given in UTC."""

    text: str

    @classmethod
    def parse(cls, field: str, text: str) -> "Schedule":
        """Raises `SpecError`, which names the field, where the text names no time that ever comes."""
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
