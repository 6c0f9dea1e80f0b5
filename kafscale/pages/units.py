"""Numbers as people read them. Pure."""

import math
from typing import Final

NOT_KNOWN: Final = "\N{EN DASH}"

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS: Final = ("", " K", " M", " G", " T")
_LARGEST_EXACT: Final = 10_000_000
_DURATIONS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def count(value: float | None) -> str:
    """`12,345`; from ten millions on `12.3 M`."""
    if value is None:
        return NOT_KNOWN
    if not math.isfinite(value):
        return "no limit"
    if abs(value) < _LARGEST_EXACT:
        return f"{value:,.0f}"
    return _scaled(value, 1000, _COUNT_UNITS, "")


def things(value: float | None, one: str) -> str:
    """`1 partition`, `12,345 partitions`."""
    return f"{count(value)} {one}" + ("" if value == 1 else "s")


def size(value: float | None) -> str:
    """`1.2 MiB`."""
    return NOT_KNOWN if value is None else _scaled(value, 1024, _BYTE_UNITS, " ")


def size_rate(value: float | None) -> str:
    """`1.2 MiB/s`."""
    return NOT_KNOWN if value is None else f"{size(value)}/s"


def rate(value: float | None) -> str:
    """`1,234/s`; small ones with their fraction."""
    if value is None:
        return NOT_KNOWN
    if 0 < abs(value) < 0.01:
        return "<0.01/s"
    if 0 < abs(value) < 10:
        return f"{value:.2f}/s"
    return f"{count(value)}/s"


def record_rate(value: float) -> str:
    """`1,234 records/s`."""
    return rate(value).replace("/s", " records/s")


def duration(seconds: float | None) -> str:
    """`340 ms`, `12.3 s`, `3 h 4 min`."""
    if seconds is None:
        return NOT_KNOWN
    if math.isinf(seconds):
        return "longer"
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for large, name, small, small_name in _DURATIONS:
        if seconds >= large:
            whole, rest = divmod(int(seconds), large)
            return f"{whole} {name} {rest // small} {small_name}"
    raise AssertionError(seconds)


def dollars(value: float | None) -> str:
    """`$12.34`; below a cent with two digits that count."""
    if value is None:
        return NOT_KNOWN
    if value == 0 or value >= 0.01:
        return f"${value:,.2f}"
    return "<$0.000001" if value < 1e-6 else f"${value:.{max(2, 1 - math.floor(math.log10(value)))}f}"


def share(part: float, whole: float) -> str:
    """`12 %`."""
    return NOT_KNOWN if whole <= 0 else f"{100 * part / whole:.0f} %"


def _scaled(value: float, step: int, units: tuple[str, ...], space: str) -> str:
    scaled, unit = float(value), units[0]
    for unit in units:
        if abs(scaled) < step or unit == units[-1]:
            break
        scaled /= step
    digits = 0 if unit == units[0] or abs(scaled) >= 100 else 1
    return f"{scaled:,.{digits}f}{space}{unit}"
