"""Leader election with one Lease object, as Kubernetes' own controllers do it. Pure.

No candidate trusts another's clock: a lease has expired once it has not changed for its duration by the observer's
own clock. The leader stops working some time before that, counted from the *start* of its last renewal.
Every write names the resource version that was read, so two cannot both succeed.
"""

from dataclasses import dataclass
from typing import Final

DURATION_SEC: Final = 15.0
"""After this long without a change others may take the lease."""

DEADLINE_SEC: Final = 10.0
"""After this long without a renewal the leader stops working."""

RETRY_SEC: Final = 2.0
"""Interval of reading and renewing the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """The lease as stored. `holder`: empty if released. `version`: the object's resource version."""

    holder: str
    duration_sec: float
    transitions: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write of the lease. `version`: replaces only that one; None: only if there is none.

    `acquired`: the holder changes, and with it the time of acquisition.
    """

    holder: str
    transitions: int
    version: str | None
    acquired: bool


class Election:
    """One candidate. `now_sec`: of a monotonic clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen_version: str | None = None
        self._seen_sec = 0.0
        self._renewed_sec: float | None = None

    def look(self, lease: LeaseState | None, now_sec: float) -> Write | None:
        """Returns the write that follows from the stored lease; None: wait."""
        if lease is None:
            return Write(holder=self._identity, transitions=0, version=None, acquired=True)
        if lease.holder == self._identity:
            return Write(
                holder=self._identity, transitions=lease.transitions, version=lease.version, acquired=False
            )
        self._renewed_sec = None
        if lease.version != self._seen_version:
            self._seen_version, self._seen_sec = lease.version, now_sec
        if lease.holder and now_sec < self._seen_sec + lease.duration_sec:
            return None
        return Write(
            holder=self._identity, transitions=lease.transitions + 1, version=lease.version, acquired=True
        )

    def written(self, begun_sec: float) -> None:
        """The write that started at `begun_sec` has succeeded."""
        self._renewed_sec = begun_sec

    def leads(self, now_sec: float) -> bool:
        """True while this candidate may work."""
        return self._renewed_sec is not None and now_sec < self._renewed_sec + DEADLINE_SEC

    def resign(self, lease: LeaseState | None) -> Write | None:
        """Returns the write that releases the lease; None if another candidate owns it."""
        self._renewed_sec = None
        if lease is None or lease.holder != self._identity:
            return None
        return Write(holder="", transitions=lease.transitions, version=lease.version, acquired=False)
