"""Where a share group begins with a partition: the values of `share.auto.offset.reset`."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LEGAL: Final = "earliest, latest or by_duration:<PnDTnHnMn.nS>, as by_duration:PT12H"

_BY_DURATION: Final = "by_duration:"
_NUMBER: Final = r"([+-]?[0-9]{1,12})"
_DURATION: Final = re.compile(
    rf"([+-]?)P(?:{_NUMBER}D)?(?:T(?=[+0-9-])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_SECOND_MS: Final = 1_000


class ResetTo(StrEnum):
    """The strategies."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A strategy. `duration_ms`: of BY_DURATION, how far back."""

    to: ResetTo
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "OffsetReset":
        """As Kafka writes it, in lower case; a duration is one of ISO 8601. Raises `ValueError`."""
        if text.startswith(_BY_DURATION):
            return cls(ResetTo.BY_DURATION, _duration_ms(text.removeprefix(_BY_DURATION)))
        to = ResetTo(text)
        if to is ResetTo.BY_DURATION:
            raise ValueError(text)
        return cls(to)


def _duration_ms(text: str) -> int:
    """Days, hours, minutes and seconds, each with a sign of its own, as Java reads them; not below 0 together."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = match.groups()
    if days is hours is minutes is seconds is None:
        raise ValueError(text)
    part_ms = int((fraction or "").ljust(3, "0")[:3])
    duration_ms = (
        int(days or 0) * _DAY_MS
        + int(hours or 0) * _HOUR_MS
        + int(minutes or 0) * _MINUTE_MS
        + int(seconds or 0) * _SECOND_MS
        + (-part_ms if (seconds or "").startswith("-") else part_ms)
    )
    if sign == "-":
        duration_ms = -duration_ms
    if duration_ms < 0:
        raise ValueError(text)
    return duration_ms
