"""Properties that keep the metadata of a table small, whichever engine writes it. Pure.

A commit adds a snapshot to the table's metadata, and the metadata is a new file each time: without an end to both, a
table that is exported every minute has gigabytes of them after a month.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

DELETE_OLD_METADATA: Final = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
MAX_SNAPSHOT_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
MERGE_MANIFESTS: Final = "commit.manifest-merge.enabled"
GC_ENABLED: Final = "gc.enabled"

_HOUR_MS: Final = 3_600_000
# Iceberg's default for the last; pyiceberg only merges manifests where the table says so.
_METADATA: Final = {DELETE_OLD_METADATA: "true", PREVIOUS_VERSIONS: "20", MERGE_MANIFESTS: "true"}
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
    """How long the table's properties keep its snapshots; None if an export must not expire any.

    That is so without a maximum age, with one that is not a number, and where `gc.enabled` is false.
    """
    age, least = properties.get(MAX_SNAPSHOT_AGE_MS), properties.get(MIN_SNAPSHOTS, "1")
    if age is None or properties.get(GC_ENABLED, "true").lower() == "false":
        return None
    if not (age.isdecimal() and least.isdecimal() and int(least) >= 1):
        return None
    return Retention(max_age_ms=int(age), min_snapshots=int(least))


STAGED_AGE_MS: Final = 24 * _HOUR_MS
"""A snapshot that no branch has stays as long: a running export may have staged it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAge:
    """A snapshot of a table, as far as its expiry goes."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefLimits:
    """A branch or a tag; a branch may have limits of its own."""

    snapshot_id: int
    is_branch: bool
    max_age_ms: int | None = None
    min_snapshots: int | None = None


def expired_ids(
    snapshots: Sequence[SnapshotAge], refs: Iterable[RefLimits], retention: Retention, now_ms: int
) -> list[int]:
    """The snapshots that are to go, in their order.

    As Iceberg has it: heads of branches and tags stay, the newest of each branch, and what is younger than the age.
    """
    by_id = {one.snapshot_id: one for one in snapshots}
    kept: set[int] = set()
    reachable: set[int] = set()
    for ref in refs:
        line = list(_line(by_id, ref.snapshot_id))
        reachable |= set(line) if ref.is_branch else set(line[:1])
        kept |= _kept_of(ref, line, by_id, retention, now_ms)
    oldest_ms = now_ms - max(retention.max_age_ms, STAGED_AGE_MS)
    kept |= {
        one.snapshot_id
        for one in snapshots
        if one.snapshot_id not in reachable and one.timestamp_ms >= oldest_ms
    }
    return [one.snapshot_id for one in snapshots if one.snapshot_id not in kept]


def _line(by_id: Mapping[int, SnapshotAge], snapshot_id: int | None) -> Iterator[int]:
    """The snapshot and its known ancestors, the newest first."""
    while snapshot_id is not None and (found := by_id.get(snapshot_id)) is not None:
        yield found.snapshot_id
        snapshot_id = found.parent_id


def _kept_of(
    ref: RefLimits, line: Sequence[int], by_id: Mapping[int, SnapshotAge], retention: Retention, now_ms: int
) -> set[int]:
    if not ref.is_branch:
        return set(line[:1])
    oldest_ms = now_ms - (retention.max_age_ms if ref.max_age_ms is None else ref.max_age_ms)
    least = ref.min_snapshots or retention.min_snapshots
    kept = set()
    for number, snapshot_id in enumerate(line):
        if number >= least and by_id[snapshot_id].timestamp_ms < oldest_ms:
            break
        kept.add(snapshot_id)
    return kept
