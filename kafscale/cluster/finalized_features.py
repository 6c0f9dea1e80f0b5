"""A part of the view: the feature levels that the cluster has finalized."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafscale.cluster.unreadable_records import UnreadableRecords
from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.features import decode_level, level_before
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue


class FinalizedFeature(NamedTuple):
    """A feature's finalized level, and the revision at which it was finalized."""

    level: int
    revision: int


class FinalizedFeatures:
    """The features of which a level is finalized. A record that cannot be read is not among them."""

    def __init__(self, unreadable: UnreadableRecords) -> None:
        self._unreadable = unreadable
        self._features: dict[str, FinalizedFeature] = {}

    def level(self, feature: str) -> int:
        """The finalized level of the feature; until there is one, the lowest that is supported."""
        finalized = self._features.get(feature)
        return level_before(feature) if finalized is None else finalized.level

    def all(self) -> Mapping[str, FinalizedFeature]:
        """All of them, by name."""
        return self._features

    def known_keys(self) -> list[str]:
        """See `RecordTable`."""
        return [keys.feature(name) for name in self._features]

    def apply(self, changes: Iterable[KeyValue | Delete]) -> None:
        """See `RecordTable`. Raises `UnknownFormatVersionError` for a level that this program does not support."""
        for change in changes:
            name = keys.feature_name(change.key)
            if isinstance(change, Delete):
                self._unreadable.remove(change.key)
                self._features.pop(name, None)
                continue
            try:
                level = decode_level(change.key, change.value)
            except UnknownFormatVersionError:
                raise
            except CorruptDataError as problem:
                # What is written meanwhile is what every release reads, or what the level allowed before.
                self._unreadable.add(change, problem)
            else:
                self._unreadable.remove(change.key)
                self._features[name] = FinalizedFeature(level, change.mod_revision)
