"""Properties that keep the metadata of a table small, whichever engine writes it. Pure.

A commit adds a snapshot to the table's metadata, and the metadata is a new file each time: without an end to both, a
table that is exported every minute has gigabytes of them after a month.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DELETE_OLD_METADATA: Final = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
MAX_SNAPSHOT_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
GC_ENABLED: Final = "gc.enabled"

_HOUR_MS: Final = 3_600_000
_METADATA: Final = {DELETE_OLD_METADATA: "true", PREVIOUS_VERSIONS: "20"}
_HISTORY: Final = {MAX_SNAPSHOT_AGE_MS: str(6 * _HOUR_MS), MIN_SNAPSHOTS: "100"}

LEAST_TO_EXPIRE: Final = 20
"""An expiry is a commit of its own: fewer snapshots are not worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long snapshots stay: younger than `max_age_ms`, and the newest `min_snapshots` of each branch."""

    max_age_ms: int
    min_snapshots: int


def properties_of_new_table() -> dict[str, str]:
    """For a table that an export creates: old metadata files and old snapshots go."""
    return {**_METADATA, **_HISTORY}


def properties_to_add(present: Mapping[str, str]) -> dict[str, str]:
    """For a table that is there: old metadata files go, unless a property says otherwise.

    Its snapshots stay as they are: other programs may read them.
    """
    return {key: value for key, value in _METADATA.items() if key not in present}


def retention_of(properties: Mapping[str, str]) -> Retention | None:
    """What the table's properties say about its snapshots; None if an export must not expire any.

    That is so without a maximum age, with one that is not a number, and where `gc.enabled` is false.
    """
    age, least = properties.get(MAX_SNAPSHOT_AGE_MS), properties.get(MIN_SNAPSHOTS, "1")
    if age is None or properties.get(GC_ENABLED, "true").lower() == "false":
        return None
    if not (age.isdecimal() and least.isdecimal() and int(least) >= 1):
        return None
    return Retention(max_age_ms=int(age), min_snapshots=int(least))
