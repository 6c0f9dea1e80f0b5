"""The picture of the cluster in memory, as the metadata store last showed it: brokers, topics, leaders, users.

Reads are synchronous. `ClusterViewFeeder` applies what the store's watches report; a writer waits with `wait_for`.
"""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from kafscale.cluster.finalized_features import FinalizedFeature, FinalizedFeatures
from kafscale.cluster.listeners import Listeners
from kafscale.cluster.topic_index import TopicIndex
from kafscale.cluster.unreadable_records import UnreadableRecords
from kafscale.cluster.watched_records import RecordTable, WatchedRecords
from kafscale.errors import CorruptDataError
from kafscale.formats.group_config_record import decode_group_configs
from kafscale.formats.quota_record import decode_quotas_of_key
from kafscale.formats.topic_record import (
    decode_broker_record,
    decode_coordinator_record,
    decode_leader_record,
    decode_topic_record,
)
from kafscale.formats.user_record import decode_user_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, BrokerState, LeaderRecord, TopicRecord, TopicState
from kafscale.metadata.store import ABSENT, Changes, Delete, KeyValue, Snapshot
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

PREFIXES: Final = (
    keys.BROKERS,
    keys.TOPICS,
    keys.LEADERS,
    keys.COORDINATORS,
    keys.FEATURES,
    keys.QUOTAS,
    keys.GROUP_CONFIGS,
    keys.USERS,
)

TopicListener = Callable[[TopicRecord | None, TopicRecord | None], None]
"""Called with a topic's record before and after a change; None: the topic was not, or is not, there.

The two have the same topic id: for a name that is used again there are two calls.
"""

LeaderListener = Callable[[str, int, LeaderRecord | None], None]
"""Called with topic, partition and who leads it now."""

BrokerListener = Callable[[], None]
"""Called when the set of live brokers, or what they say of themselves, changed."""

CoordinatorListener = Callable[[int], None]
"""Called with a group shard whose coordinator changed."""


_NO_LEADERS: Final[Mapping[int, LeaderRecord]] = {}


class ClusterView:
    """The records that brokers watch in the metadata store. Every method belongs to the event loop's thread.

    Listeners are called synchronously, after the picture has the change; a snapshot that replaces the
    picture calls them for the differences only. One that raises is reported to `failures`, and keeps nothing from
    the others. A record that cannot be read is in `unreadable`: a topic or a broker stays as it was known, a leader
    or coordinator is not known.
    """

    def __init__(self, cluster_id: str, failures: ItemFailures | None = None) -> None:
        self.cluster_id = cluster_id
        self.unreadable = UnreadableRecords()
        failures = failures or ItemFailures(BackgroundWork.VIEW)
        self.change_count = 0
        self._revisions: dict[str, int] = {}
        self._brokers: dict[int, BrokerRecord] = {}
        self._topics = TopicIndex()
        self._topic_revisions: dict[str, int] = {}
        self._leaders: dict[str, dict[int, LeaderRecord]] = {}
        self._generations = itertools.count(1)
        self._brokers_generation = 0
        self._leaders_generations: dict[str, int] = {}
        self._coordinators: dict[int, int] = {}
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._topic_listeners: Listeners[TopicListener] = Listeners(failures)
        self._leader_listeners: Listeners[LeaderListener] = Listeners(failures)
        self._broker_listeners: Listeners[BrokerListener] = Listeners(failures)
        self._coordinator_listeners: Listeners[CoordinatorListener] = Listeners(failures)
        self._features = FinalizedFeatures(self.unreadable)
        self.quotas = WatchedRecords(decode_quotas_of_key, self.unreadable, failures)
        self.group_configs = WatchedRecords(decode_group_configs, self.unreadable, failures)
        # A credential that cannot be read lets no client in: it may be the one that replaced a known password.
        self.users = WatchedRecords(decode_user_record, self.unreadable, failures, keeps=False)
        self._tables: Mapping[str, RecordTable] = {
            keys.FEATURES: self._features,
            keys.QUOTAS: self.quotas,
            keys.GROUP_CONFIGS: self.group_configs,
            keys.USERS: self.users,
        }

    # Reads

    def brokers(self) -> tuple[BrokerRecord, ...]:
        """The live brokers that clients may connect to, ascending by id."""
        live = (self._brokers[broker_id] for broker_id in sorted(self._brokers))
        return tuple(record for record in live if record.state is not BrokerState.STARTING)

    def broker(self, broker_id: int) -> BrokerRecord | None:
        """The broker, None when it is not live or has not started yet."""
        record = self._brokers.get(broker_id)
        return None if record is None or record.state is BrokerState.STARTING else record

    def broker_state(self, broker_id: int) -> BrokerState | None:
        """The broker's state, None when it is not live."""
        record = self._brokers.get(broker_id)
        return None if record is None else record.state

    def brokers_to_prefer(self, myself: int) -> tuple[int, ...]:
        """The brokers that partitions and groups are spread over, ascending, as the broker `myself` sees it.

        Those that run; a broker that starts counts itself, so that it can claim what has no owner.
        """
        return tuple(
            broker_id
            for broker_id in sorted(self._brokers)
            if (state := self._brokers[broker_id].state) is BrokerState.RUNNING
            or (state is BrokerState.STARTING and broker_id == myself)
        )

    def brokers_to_read_from(self) -> tuple[BrokerRecord, ...]:
        """The brokers that consumers may be sent to, ascending by id."""
        return tuple(record for record in self.brokers() if record.state is BrokerState.RUNNING)

    def topic(self, name: str, *, include_deleting: bool = False) -> TopicRecord | None:
        """The topic, None when there is none of this name or it is being deleted."""
        record = self._topics.get(name)
        if record is None or include_deleting or record.state is TopicState.ACTIVE:
            return record
        return None

    def topic_revision(self, name: str) -> int:
        """The revision at which the record of `topic` was written; `ABSENT` without one."""
        return self._topic_revisions.get(name, ABSENT)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicRecord | None:
        """The topic with this id, None when there is none or it is being deleted."""
        name = self._topics.name_of(topic_id)
        return None if name is None else self.topic(name)

    def topics(self, *, include_deleting: bool = False) -> Iterable[TopicRecord]:
        """The topics, ascending by name."""
        topics = self._topics.sorted_by_name()
        return (
            topics if include_deleting else (record for record in topics if record.state is TopicState.ACTIVE)
        )

    def names_like(self, name: str) -> Collection[str]:
        """The topics whose names are this one, or differ from it only by `.` and `_`; also those being deleted."""
        return self._topics.names_like(name)

    @property
    def topic_count(self) -> int:
        """How many topics there are, those that are being deleted included."""
        return len(self._topics)

    def topic_names(self) -> list[str]:
        """The names of all topics, those that are being deleted included, in no order. For any thread."""
        return list(self._topics.records)

    def offline_partition_count(self) -> int:
        """How many partitions have no leader. For any thread."""
        led = {topic: len(leaders) for topic, leaders in list(self._leaders.items())}
        return sum(
            max(0, record.partition_count - led.get(name, 0))
            for name, record in list(self._topics.records.items())
            if record.state is TopicState.ACTIVE
        )

    @property
    def broker_count(self) -> int:
        """How many brokers are live. For any thread."""
        return len(self._brokers)

    def leader(self, topic: str, partition: int) -> LeaderRecord | None:
        """The partition's leader, None while it has none."""
        return self._leaders.get(topic, _NO_LEADERS).get(partition)

    def leaders(self, topic: str) -> Mapping[int, LeaderRecord]:
        """The leaders of the topic's partitions; partitions without one are not in it."""
        return self._leaders.get(topic, _NO_LEADERS)

    def generation(self, topic: str) -> tuple[int, int]:
        """Numbers that change with every change of the brokers, and of the topic's leaders.

        The topic's record is not part of it. For caches of what is derived from them.
        """
        return self._brokers_generation, self._leaders_generations.get(topic, 0)

    def coordinator(self, shard: int) -> int | None:
        """The broker that coordinates the groups of the shard, None while it has no coordinator."""
        return self._coordinators.get(shard)

    def feature_level(self, feature: str) -> int:
        """The finalized level of the feature; until there is one, the lowest that is supported."""
        return self._features.level(feature)

    def finalized_features(self) -> Mapping[str, FinalizedFeature]:
        """The features of which a level is finalized, by name."""
        return self._features.all()

    # Waiting

    async def ready(self) -> None:
        """Wait until everything below `PREFIXES` has been read once."""
        await self.wait_until(lambda: len(self._revisions) == len(PREFIXES))

    def missing(self) -> str | None:
        """The prefixes that have not been read yet, for people; None when all have."""
        return ", ".join(prefix for prefix in PREFIXES if prefix not in self._revisions) or None

    async def wait_for(self, revision: int, prefix: str = keys.TOPICS) -> None:
        """Wait until the picture shows what a transaction at `revision` changed under `prefix`.

        The transaction must have changed a key under `prefix`: a watch reports no other revision.
        """
        await self.wait_until(lambda: self._revisions.get(prefix, -1) >= revision)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, a cheap function of this view, is true."""
        if condition():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = condition
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    # Listening

    def subscribe(self, listener: TopicListener) -> Callable[[], None]:
        """Call `listener` at each change of a topic from now on. The returned function ends that."""
        return self._topic_listeners.add(listener)

    def subscribe_leaders(self, listener: LeaderListener) -> Callable[[], None]:
        """Call `listener` at each change of a partition's leader from now on."""
        return self._leader_listeners.add(listener)

    def subscribe_brokers(self, listener: BrokerListener) -> Callable[[], None]:
        """Call `listener` at each change of the live brokers from now on."""
        return self._broker_listeners.add(listener)

    def subscribe_coordinators(self, listener: CoordinatorListener) -> Callable[[], None]:
        """Call `listener` at each change of a group shard's coordinator from now on."""
        return self._coordinator_listeners.add(listener)

    # What the feeder calls

    def apply(self, prefix: str, event: Snapshot | Changes) -> None:
        """Take in what the watch of `prefix`, one of `PREFIXES`, reported.

        Raises `UnknownFormatVersionError` only for a feature's level that this program does not support: what it
        wrote would break what the others rely on.
        """
        if isinstance(event, Snapshot):
            present = {item.key for item in event.items}
            gone = [Delete(key) for key in self._known_keys(prefix) if key not in present]
            self.unreadable.retain(prefix, present)
            changes: Iterable[KeyValue | Delete] = (*gone, *event.items)
        else:
            changes = event.puts_and_deletes
        match prefix:
            case keys.BROKERS:
                self._apply_brokers(changes)
            case keys.TOPICS:
                self._apply_topics(changes)
            case keys.LEADERS:
                self._apply_leaders(changes)
            case keys.COORDINATORS:
                self._apply_coordinators(changes)
            case _ if prefix in self._tables:
                self._tables[prefix].apply(changes)
            case _:
                raise ValueError(f"the view does not watch {prefix!r}; it watches {', '.join(PREFIXES)}")
        self._revisions[prefix] = max(event.revision, self._revisions.get(prefix, -1))
        self.change_count += 1
        for waiter, condition in list(self._waiters.items()):
            if not waiter.done() and condition():
                waiter.set_result(None)

    def _known_keys(self, prefix: str) -> list[str]:
        if prefix == keys.BROKERS:
            return [keys.broker(broker_id) for broker_id in self._brokers]
        if prefix == keys.TOPICS:
            return [keys.topic(name) for name in self._topics.records]
        if prefix == keys.COORDINATORS:
            return [keys.coordinator(shard) for shard in self._coordinators]
        if prefix in self._tables:
            return self._tables[prefix].known_keys()
        return [keys.leader(topic, index) for topic, leaders in self._leaders.items() for index in leaders]

    def _apply_brokers(self, changes: Iterable[KeyValue | Delete]) -> None:
        before = dict(self._brokers)
        for change in changes:
            self._brokers_generation = next(self._generations)
            record = self.unreadable.read(change, _broker_of_key)
            if record is not None:
                self._brokers[record.broker_id] = record
            elif isinstance(change, Delete) and (broker_id := _number(change.key, keys.BROKERS)) is not None:
                self._brokers.pop(broker_id, None)
        if self._brokers != before:
            self._broker_listeners.notify()

    def _apply_topics(self, changes: Iterable[KeyValue | Delete]) -> None:
        for change in changes:
            name = change.key.removeprefix(keys.TOPICS)
            after = self.unreadable.read(change, decode_topic_record)
            if isinstance(change, Delete):
                self._topic_revisions.pop(name, None)
            elif after is not None:
                self._topic_revisions[name] = change.mod_revision
            before = self._topics.get(name)
            if before == after or (after is None and not isinstance(change, Delete)):
                continue
            if before is not None and after is not None and before.topic_id != after.topic_id:
                self._set_topic(before, None)
                before = None
            self._set_topic(before, after)

    def _set_topic(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        self._topics.replace(before, after)
        self._topic_listeners.notify(before, after)

    def _apply_leaders(self, changes: Iterable[KeyValue | Delete]) -> None:
        read: dict[bytes, LeaderRecord] = {}  # Few differ: most name the same broker and the same epoch.
        for change in changes:
            after = None if isinstance(change, Delete) else read.get(change.value)
            if after is None:
                after = self.unreadable.read(change, decode_leader_record)
            else:
                self.unreadable.remove(change.key)
            if after is not None and not isinstance(change, Delete):
                read[change.value] = after
            place = self._place(change)
            if place is None:
                continue
            topic, partition = place
            leaders = self._leaders.setdefault(topic, {})
            before = leaders.get(partition)
            if before != after:
                self._leaders_generations[topic] = next(self._generations)
            if after is not None:
                leaders[partition] = after
            else:
                leaders.pop(partition, None)
            if not leaders:
                del self._leaders[topic]
                self._leaders_generations.pop(topic, None)  # As of every topic without leaders.
            if before != after:
                self._leader_listeners.notify(topic, partition, after)

    def _place(self, change: KeyValue | Delete) -> tuple[str, int] | None:
        """The topic and partition of a leader's key, None for a key that is none."""
        try:
            return keys.topic_and_partition(change.key)
        except ValueError as problem:
            if isinstance(change, KeyValue):
                self.unreadable.add(change, problem)
            return None

    def _apply_coordinators(self, changes: Iterable[KeyValue | Delete]) -> None:
        for change in changes:
            record = self.unreadable.read(change, decode_coordinator_record)
            shard = _number(change.key, keys.COORDINATORS)
            if shard is None:
                continue
            before = self._coordinators.pop(shard, None)
            if record is not None:
                self._coordinators[shard] = record.broker_id
            if self._coordinators.get(shard) != before:
                self._coordinator_listeners.notify(shard)


def _broker_of_key(key: str, value: bytes) -> BrokerRecord:
    record = decode_broker_record(key, value)
    if key != keys.broker(record.broker_id):
        raise CorruptDataError(key, f"it describes broker {record.broker_id}")
    return record


def _number(key: str, prefix: str) -> int | None:
    """The number that the key ends with; None for one that ends otherwise, which no broker wrote."""
    text = key.removeprefix(prefix)
    return int(text) if text.isdecimal() else None
