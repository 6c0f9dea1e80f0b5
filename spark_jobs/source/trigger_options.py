"""The options of a stream that say how much one micro-batch takes, and when."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kafscale.lake.offset_points import SourceOptionError
from kafscale.settings.kinds import Kind, boolean, integer
from spark_jobs.source import option_rows as names

T = TypeVar("T")

DEFAULT_DELAY_SEC: Final = 15 * 60.0

_OFFSETS: Final = integer(1, 2**63 - 1)
_DELAY: Final = re.compile(r"([0-9]{1,12})\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_UNITS_SEC: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """How many offsets a micro-batch takes at most, and how many must wait for it at least; None: no limit.

    `max_delay_sec`: after this long since the last micro-batch fewer are enough. `ends_at_latest`: the stream has an
    end, that of the partitions when it starts.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_sec: float = DEFAULT_DELAY_SEC
    ends_at_latest: bool = False


def parse_trigger(given: Mapping[str, str]) -> TriggerOptions:
    """The options, by their names in lower case. Raises `SourceOptionError`, also for those without an effect."""
    max_offsets = _number(given, names.MAX_OFFSETS_PER_TRIGGER)
    min_offsets = _number(given, names.MIN_OFFSETS_PER_TRIGGER)
    delay = given.get(names.MAX_TRIGGER_DELAY.lower())
    ends_at_latest = _flag(given, names.AVAILABLE_NOW)
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise SourceOptionError(
            f"option {names.MIN_OFFSETS_PER_TRIGGER}={min_offsets} is not legal: it must not be more than "
            f"{names.MAX_OFFSETS_PER_TRIGGER}={max_offsets}"
        )
    if delay is not None and min_offsets is None:
        raise SourceOptionError(
            f"option {names.MAX_TRIGGER_DELAY} has no effect without {names.MIN_OFFSETS_PER_TRIGGER}"
        )
    if ends_at_latest and min_offsets is not None:
        raise SourceOptionError(
            f"option {names.MIN_OFFSETS_PER_TRIGGER} has no effect with {names.AVAILABLE_NOW}=true, which waits for "
            "nothing"
        )
    return TriggerOptions(
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_delay_sec=DEFAULT_DELAY_SEC if delay is None else _seconds(delay),
        ends_at_latest=ends_at_latest,
    )


def require_none(given: TriggerOptions) -> None:
    """Raise `SourceOptionError` for an option that a batch cannot have."""
    for option, value in (
        (names.MAX_OFFSETS_PER_TRIGGER, given.max_offsets),
        (names.MIN_OFFSETS_PER_TRIGGER, given.min_offsets),
        (names.AVAILABLE_NOW, given.ends_at_latest or None),
    ):
        if value is not None:
            raise SourceOptionError(
                f"option {option} is legal in a stream only: a batch reads all of its range"
            )


def _number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    return None if text is None else _parsed(option, text, _OFFSETS)


def _flag(given: Mapping[str, str], option: str) -> bool:
    text = given.get(option.lower())
    return False if text is None else _parsed(option, text, boolean())


def _parsed(option: str, text: str, kind: Kind[T]) -> T:
    try:
        return kind.parse(text.strip())
    except ValueError:
        raise SourceOptionError(f"option {option}={text!r} is not legal: it must be {kind.legal}") from None


def _seconds(text: str) -> float:
    """A time as Spark's options have it; without a unit it is milliseconds."""
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise SourceOptionError(
            f"option {names.MAX_TRIGGER_DELAY}={text!r} is not legal: it must be a time such as 500ms, 30s, 15m or 1h"
        )
    return int(match[1]) * _UNITS_SEC[(match[2] or "ms").lower()]
