"""The keys of snapshots in the backup bucket, and which of them are to go. Pure.

A key says when, of which revision and of which cluster:
`{prefix}/{namespace}/20261122T020000Z-0000000000004711-fS2D5cHJTp2rH1kQyVb0LA.kfsnap`. Keys sort by time. Clusters
with buckets of their own have the same namespace easily, and one backup bucket: none touches another's snapshots.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_KEY: Final = re.compile(r"(.+)/([0-9]{8}T[0-9]{6}Z)-([0-9]{16})-([^/]+)\.kfsnap")
_TIME: Final = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot as its key has it. `created_ms`: Unix milliseconds, whole seconds."""

    key: str
    created_ms: int
    revision: int
    cluster_id: str
    size_bytes: int


def folder(prefix: str, namespace: str) -> str:
    """The prefix of all keys of the namespace's snapshots."""
    return f"{prefix.rstrip('/')}/{namespace}/"


def key_of(prefix: str, namespace: str, created_ms: int, revision: int, cluster_id: str) -> str:
    """The key of a snapshot."""
    time = datetime.fromtimestamp(created_ms // 1000, UTC).strftime(_TIME)
    return f"{folder(prefix, namespace)}{time}-{revision:016d}-{cluster_id}.kfsnap"


def snapshot_of(key: str, size_bytes: int) -> StoredSnapshot | None:
    """The inverse; None for a key that is not a snapshot's."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    try:
        time = datetime.strptime(match[2], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return StoredSnapshot(
        key=key,
        created_ms=int(time.timestamp()) * 1000,
        revision=int(match[3]),
        cluster_id=match[4],
        size_bytes=size_bytes,
    )


def expired(
    snapshots: Iterable[StoredSnapshot], *, taken: StoredSnapshot, keep: int, keep_for_ms: int, now_ms: int
) -> Sequence[StoredSnapshot]:
    """Those that are neither among the newest `keep` nor younger than `keep_for_ms`, oldest first.

    `taken` stays in any case: others may be newer only by the clock that they were taken by. They stay as well, for
    they may be really newer, and their own run deletes this one.
    """
    oldest_first = sorted(snapshots, key=lambda one: (one.created_ms, one.revision))
    beyond = oldest_first[: max(0, len(oldest_first) - keep)]
    return [one for one in beyond if one.created_ms < now_ms - keep_for_ms and one.key != taken.key]
