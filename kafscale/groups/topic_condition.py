"""The condition of a committed offset: its topic is still the one that it was committed for."""

import uuid
from dataclasses import dataclass, replace

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata.store import Compare, KeyValue, Put


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """`key`: the topic's key. `topic_id`: its id. `mod_revision`: the revision that wrote its record."""

    key: str
    topic_id: uuid.UUID
    mod_revision: int

    @property
    def compare(self) -> Compare:
        """The compare of a transaction that depends on the condition."""
        return Compare(self.key, self.mod_revision)

    def agrees_with(self, other: "TopicCondition") -> bool:
        """True if one transaction can have both; which of the two revisions is older does not matter."""
        return self.key != other.key or self.topic_id == other.topic_id

    def now(self, found: KeyValue | None) -> "TopicCondition | None":
        """The condition at the revision that was found; None if it is another topic, or none."""
        if found is None:
            return None
        try:
            record = decode_topic_record(found.key, found.value)
        except CorruptDataError:
            return None
        return replace(self, mod_revision=found.mod_revision) if record.topic_id == self.topic_id else None


@dataclass(frozen=True, slots=True)
class ConditionalPut:
    """A committed offset that is written only while its topic is the one that it was committed for."""

    put: Put
    condition: TopicCondition
