"""Topics by name, by id, and by the names that a topic could be confused with."""

import uuid
from collections.abc import Collection, Mapping

from kafscale.cluster.new_topic import collision_key
from kafscale.metadata.model import TopicRecord


class TopicIndex:
    """The records of all topics, those that are being deleted included."""

    def __init__(self) -> None:
        self._records: dict[str, TopicRecord] = {}
        self._names_by_id: dict[uuid.UUID, str] = {}
        self._names_by_collision_key: dict[str, set[str]] = {}
        self._sorted: tuple[TopicRecord, ...] | None = None

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> Mapping[str, TopicRecord]:
        """The records by name."""
        return self._records

    def get(self, name: str) -> TopicRecord | None:
        """The topic of this name."""
        return self._records.get(name)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id."""
        return self._names_by_id.get(topic_id)

    def names_like(self, name: str) -> Collection[str]:
        """The topics whose names are this one, or differ from it only by `.` and `_`."""
        return self._names_by_collision_key.get(collision_key(name), ())

    def sorted_by_name(self) -> tuple[TopicRecord, ...]:
        """All topics, ascending by name; sorted once for as long as none changes."""
        if self._sorted is None:
            self._sorted = tuple(self._records[name] for name in sorted(self._records))
        return self._sorted

    def replace(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        """Remove the topic `before`, which is there, and add `after`, of the same name."""
        if before is not None:
            self._remove(before)
        if after is not None:
            self._records[after.name] = after
            self._names_by_id[after.topic_id] = after.name
            self._names_by_collision_key.setdefault(collision_key(after.name), set()).add(after.name)
        self._sorted = None

    def _remove(self, record: TopicRecord) -> None:
        del self._records[record.name]
        self._names_by_id.pop(record.topic_id, None)
        key = collision_key(record.name)
        alike = self._names_by_collision_key[key]
        alike.discard(record.name)
        if not alike:
            del self._names_by_collision_key[key]
