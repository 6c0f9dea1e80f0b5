"""Which of several operators works: the holder of one Lease object, as Kubernetes' own controllers do it. Pure.

Nobody trusts another's clock: a lease has ended once it has not changed for its duration by the observer's own
clock. Whoever holds it stops working some time before that, counted from when its last renewal was *begun*.
Every write names the resource version that was seen, so two cannot both succeed.
"""

from dataclasses import dataclass
from typing import Final

DURATION_SEC: Final = 15.0
"""After so long without a change others may take the lease."""

DEADLINE_SEC: Final = 10.0
"""After so long without a renewal its holder works no more."""

RETRY_SEC: Final = 2.0
"""How often it is looked at, and renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """The lease as stored. `holder`: empty when it was given back. `version`: the object's resource version."""

    holder: str
    duration_sec: float
    transitions: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The lease is to be written so. `version`: only in place of that one, None: only if there is none.

    `acquired`: the holder changes, so the time of acquisition does, too.
    """

    holder: str
    transitions: int
    version: str | None
    acquired: bool


class Election:
    """One candidate's part. `now_sec`: of a clock that never goes back."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen_version: str | None = None
        self._seen_sec = 0.0
        self._renewed_sec: float | None = None

    def look(self, lease: LeaseState | None, now_sec: float) -> Write | None:
        """What to write, now that the lease was found so; None: wait."""
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
        """A write that was begun then has succeeded."""
        self._renewed_sec = begun_sec

    def leads(self, now_sec: float) -> bool:
        """Whether this candidate may work."""
        return self._renewed_sec is not None and now_sec < self._renewed_sec + DEADLINE_SEC

    def resign(self, lease: LeaseState | None) -> Write | None:
        """What to write so that another need not wait; None where it is not this candidate's."""
        self._renewed_sec = None
        if lease is None or lease.holder != self._identity:
            return None
        return Write(holder="", transitions=lease.transitions, version=lease.version, acquired=False)
