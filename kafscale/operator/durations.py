"""Times as resources give them: 500ms, 90s, 15m, 24h, 7d."""

import re
from typing import Final

from kafscale.operator.errors import SpecError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")


def duration_ms(field: str, text: str) -> int:
    """Milliseconds. Raises `SpecError`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SpecError(f"{field}={text!r} is not a duration: a number and ms, s, m, h or d, such as 24h")
    return int(match[1]) * _UNITS_MS[match[2]]
