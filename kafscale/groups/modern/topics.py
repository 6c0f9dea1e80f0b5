"""The topics of groups, as the metadata store has them now: a view that lags must not decide.

A record that cannot be read says nothing about its topic. The topic is not taken for deleted then: it is as this
broker knew it before, and where the broker did not know it, its partitions stay with the members that have them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.stored_topics import stored_topics
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.topic_record import decode_topic_record
from kafscale.groups.modern.assignment import NO_PARTITIONS, Assignment, union
from kafscale.groups.modern.events import TopicIdAndCount, Topics
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

RETRY_SEC: Final = 0.2

KnownTopic = Callable[[str], TopicRecord | None]
"""A topic as the broker's view has it; None if it does not know it."""


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """`topics`: those that exist. `unknown`: names of those whose records cannot be read, and never could here."""

    topics: Topics
    unknown: frozenset[str] = frozenset()

    def kept(self, subscribed: Iterable[str], owned: Assignment) -> Assignment:
        """The partitions that a member keeps beside those assigned to it: they may be of an unknown topic.

        `subscribed`: the topics of the member; `owned`: the partitions that it has.
        """
        if not self.unknown or self.unknown.isdisjoint(subscribed):
            return NO_PARTITIONS
        known = {topic.topic_id for topic in self.topics.values()}
        return {topic_id: indexes for topic_id, indexes in owned.items() if topic_id not in known}

    def with_kept(
        self,
        target: Mapping[str, Assignment],
        members: Iterable[tuple[str, Iterable[str], Assignment]],
    ) -> Mapping[str, Assignment]:
        """The target, and what members keep: `members` are ids, topics, and what each has."""
        if not self.unknown:
            return target
        kept = {member_id: self.kept(names, owned) for member_id, names, owned in members}
        return {
            member_id: union(assigned, kept.get(member_id, NO_PARTITIONS))
            for member_id, assigned in target.items()
        }


def topics_of_records(records: Mapping[str, TopicRecord]) -> Topics:
    """The topics that exist, as an assignment sees them."""
    return {
        name: TopicIdAndCount(record.topic_id, record.partition_count)
        for name, record in records.items()
        if record.state is TopicState.ACTIVE
    }


class TopicsOfGroups:
    """The topics in the store. `known`: what the broker knew of one whose record cannot be read any more."""

    def __init__(self, store: MetadataStore, known: KnownTopic) -> None:
        self._store = store
        self._known = known
        self._reported: dict[str, int] = {}

    async def find(self, names: Iterable[str]) -> FoundTopics:
        """Those of the topics that exist, as the metadata store has them now. Raises `StoreError`."""
        records: dict[str, TopicRecord] = {}
        unknown: set[str] = set()
        for name, item in (await stored_topics(self._store, names)).items():
            record = self._read(name, item) or self._known(name)
            if record is None:
                unknown.add(name)
            else:
                records[name] = record
        return FoundTopics(topics_of_records(records), frozenset(unknown))

    async def to_assign(self, subscribed: Callable[[], Iterable[str]]) -> FoundTopics:
        """Those of the topics that `subscribed` returns in the end. Waits for the store, however long it takes."""
        while True:
            names = subscribed()
            try:
                found = await self.find(names)
            except StoreError as problem:
                logger.info("an assignment waits for the metadata store", extra={"problem": str(problem)})
                await asyncio.sleep(RETRY_SEC)
                continue
            if names == subscribed():
                return found

    def _read(self, name: str, item: KeyValue) -> TopicRecord | None:
        try:
            record = decode_topic_record(item.key, item.value)
        except CorruptDataError as problem:
            self._report(name, item, problem)
            return None
        self._reported.pop(name, None)
        return record

    def _report(self, name: str, item: KeyValue, problem: CorruptDataError) -> None:
        """Once for each revision: a target is computed whenever a member comes or goes."""
        if self._reported.get(name) == item.mod_revision:
            return
        self._reported[name] = item.mod_revision
        logger.error(
            "a topic cannot be read: groups keep its partitions as they are",
            extra={"topic": quoted(name), "problem": quoted(str(problem), 500)},
        )
