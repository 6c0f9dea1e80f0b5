"""How many files this process may have open: connections and the embedded stores share the number."""

import logging
from typing import Any

resource: Any
try:
    import resource
except ImportError:  # Windows, which has no such limit.
    resource = None

logger = logging.getLogger(__name__)

# For the stores, the logs and whatever else is open beside connections.
RESERVED_FILES = 256
# macOS takes no more from every process, whatever it says the hard limit is.
_ALWAYS_ALLOWED = 10240


def allow_connections(wanted: int) -> int:
    """Raise the process's soft limit for `wanted` connections; returns how many of them it then allows.

    Connections that took the last descriptor would keep the embedded store from writing. A soft limit may be
    raised up to the hard one without privileges; many systems start processes with 1024.
    """
    if resource is None:
        return wanted
    soft: int
    hard: int
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if limit > soft:
        limit = _raise_limit(soft, limit, hard)
    allowed = max(1, max(limit, soft) - RESERVED_FILES)
    if allowed < wanted:
        logger.warning(
            "the limit of open files allows fewer connections than KAFSCALE_MAX_CONNECTIONS",
            extra={"open_files": max(limit, soft), "connections": allowed, "wanted": wanted},
        )
    return min(allowed, wanted)


def _raise_limit(soft: int, limit: int, hard: int) -> int:
    """Raise the soft limit; returns the one that the system took."""
    for one in (limit, min(limit, _ALWAYS_ALLOWED)):
        if one <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (one, hard))
        except (ValueError, OSError):
            continue
        return one
    return soft
