"""Snapshots of the metadata store in words: lines for people, objects for programs. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafscale.ops.report_text import section, table, time_text
from kafscale.tools.backup.snapshot_keys import StoredSnapshot
from kafscale.tools.backup.snapshots import Taken
from kafscale.tools.recovery.snapshot_contents import SnapshotContents

_COLUMNS: Final = ("KEY", "TAKEN", "REVISION", "BYTES")


def taken_text(taken: Taken, location: str, removed: Sequence[StoredSnapshot]) -> str:
    """A snapshot that was just taken, its path or URL, and those that went."""
    header, stored = taken.header, taken.stored
    lines = [
        f"Took {stored.key}: {header.keys} keys of cluster {header.cluster_id} as of revision {header.revision}, "
        f"{stored.size_bytes} bytes, SHA-256 {taken.sha256}.",
        f"It is {location}",
        *section("Removed", (one.key for one in removed)),
    ]
    return "\n".join(lines)


def list_text(found: Sequence[StoredSnapshot], folder: str) -> str:
    """All snapshots as a table, oldest first."""
    if not found:
        return f"There are no snapshots under {folder}."
    rows = [(one.key, time_text(one.created_ms), str(one.revision), str(one.size_bytes)) for one in found]
    return "\n".join(table([_COLUMNS, *rows]))


def checked_text(contents: SnapshotContents) -> str:
    """One snapshot that is whole, in a line."""
    counts = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in _counts(contents).items())
    header = contents.header
    return (
        f"{contents.key}: sound; cluster {header.cluster_id}, namespace {header.namespace!r}, revision "
        f"{header.revision} of {time_text(header.created_ms)}; {counts}"
    )


def stored_fields(stored: StoredSnapshot) -> dict[str, Any]:
    """The facts in a key, for programs."""
    return {
        "key": stored.key,
        "created_ms": stored.created_ms,
        "revision": stored.revision,
        "cluster_id": stored.cluster_id,
        "size_bytes": stored.size_bytes,
    }


def checked_fields(key: str, found: SnapshotContents | str) -> Mapping[str, Any]:
    """A snapshot that was read, for programs; `found`: its contents, or what is wrong with it."""
    if isinstance(found, str):
        return {"key": key, "problem": found}
    header = found.header
    return {
        "key": key,
        "problem": None,
        "cluster_id": header.cluster_id,
        "namespace": header.namespace,
        "created_ms": header.created_ms,
        "revision": header.revision,
        "keys": header.keys,
        **_counts(found),
    }


def _counts(contents: SnapshotContents) -> dict[str, int]:
    return {
        "topics": len(contents.topics),
        "partitions": len(contents.partitions),
        "groups": len(contents.groups),
        "committed_offsets": len(contents.offsets),
    }
