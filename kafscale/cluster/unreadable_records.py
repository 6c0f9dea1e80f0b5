"""Records in the metadata store that this program cannot read: the picture of the cluster goes without them.

One bad record, or one of a newer release, must not stop every broker. What it describes is out of service where it
is not known from before; an error line, a metric and an alert report it (docs/alerts.md, KafscaleRecordUnreadable).
"""

import logging
from collections.abc import Callable, Container
from typing import Final, TypeVar

from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue

logger = logging.getLogger(__name__)

Record = TypeVar("Record")

KINDS: Final = {
    keys.TOPICS: "topic",
    keys.BROKERS: "broker",
    keys.LEADERS: "leader",
    keys.COORDINATORS: "coordinator",
    keys.FEATURES: "feature",
    keys.QUOTAS: "quota",
    keys.GROUP_CONFIGS: "group config",
    keys.USERS: "user",
}
"""The kind of record below each watched prefix: the metric's label."""


class UnreadableRecords:
    """Of one picture, by key."""

    def __init__(self) -> None:
        self._revisions: dict[str, int] = {}

    def read(self, change: KeyValue | Delete, decode: Callable[[str, bytes], Record]) -> Record | None:
        """The record; None for one that is gone or cannot be read."""
        if isinstance(change, Delete):
            self.remove(change.key)
            return None
        try:
            record = decode(change.key, change.value)
        except Exception as problem:  # noqa: BLE001 - reported
            self.add(change, problem)
            return None
        self.remove(change.key)
        return record

    def add(self, item: KeyValue, problem: Exception) -> None:
        """The record cannot be read as it is now. Logged once for each of its revisions."""
        if self._revisions.get(item.key) == item.mod_revision:
            return
        self._revisions[item.key] = item.mod_revision
        logger.error(
            "a record in the metadata store cannot be read, going on without it",
            extra={"key": item.key, "problem": str(problem), "unreadable": len(self._revisions)},
        )

    def remove(self, key: str) -> None:
        """The record can be read by now, or is gone. No error when it is not among them."""
        if self._revisions:
            self._revisions.pop(key, None)

    def retain(self, prefix: str, present: Container[str]) -> None:
        """Of the records below `prefix` only those of `present` are there."""
        for key in [key for key in self._revisions if key.startswith(prefix) and key not in present]:
            del self._revisions[key]

    def names(self, prefix: str) -> list[str]:
        """The rest of each key below `prefix`."""
        return [key.removeprefix(prefix) for key in self._revisions if key.startswith(prefix)]

    def count(self, prefix: str) -> int:
        """How many there are below `prefix`. For any thread."""
        return sum(key.startswith(prefix) for key in list(self._revisions))
