"""How fast large segments are sealed: slowly beside clients, faster the more there is to seal. Pure.

A burst of produce requests is to have the broker to itself; what it leaves is sealed in the next minute. A broker
that is never at rest has to seal as fast as it is written to, and does, with the debt of a minute.
"""

from typing import Final

LEAST_BYTES_PER_SEC: Final = 96 * 1024 * 1024
"""A tenth of a core. A broker that is written to more slowly has its slices in memory still when they are sealed."""
SPREAD_SEC: Final = 60.0


def seal_bytes_per_sec(debt_bytes: int) -> float:
    """The pace for so many bytes that are not sealed."""
    return max(LEAST_BYTES_PER_SEC, debt_bytes / SPREAD_SEC)
