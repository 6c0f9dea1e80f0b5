"""The life of topics: making them, letting them grow, changing their configs, and asking for their end.

A topic is there once its record is: partition records without a topic record are orphans of an attempt
that did not finish, which the next attempt overwrites. Every write compares what it replaces; after an
unknown outcome the store is read back and the decision made again. See docs/decisions/0008-topic-lifecycle.md.
"""

import asyncio
import dataclasses
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.cluster.new_topic import (
    CLUSTER_METADATA_TOPIC,
    NewTopic,
    check_collision,
    check_growth,
    check_storable,
    partition_count_of,
)
from kafscale.cluster.stored_topics import stored_topics
from kafscale.cluster.topic_configs import validate
from kafscale.cluster.topic_deletion import NO_EPOCH
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.features import SEGMENT_FORMAT
from kafscale.formats.object_keys import topic_name_problem
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import decode_retired_epoch, decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

_log = logging.getLogger(__name__)

T = TypeVar("T")

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Gives a topic's new configs from those it has; called again when another broker changed them meanwhile."""

LEADER_WAIT_MS: Final = 2_000
"""How long a new topic's creator waits for its leaders: without them its first requests would be refused."""

MIN_TIMEOUT_MS: Final = 1_000
"""The least wait, also for a client that asks for less: some ask for 0 and mean "at once"."""


class Topics:
    """Every change to the set of topics goes through here.

    `timeout_ms` bounds each call; past it `KafkaError` REQUEST_TIMED_OUT is raised and what was begun may
    still come true. `creating_count`: how many topics are being created.
    """

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        settings: Settings,
        *,
        new_uuid: Callable[[], uuid.UUID] = new_kafka_uuid,
        leader_wait_ms: int = LEADER_WAIT_MS,
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._view = view
        self._settings = settings
        self._new_uuid = new_uuid
        self._leader_wait_ms = leader_wait_ms
        self._retry_delay_sec = retry_delay_sec
        self.creating_count = 0

    async def create(self, topic: NewTopic, *, timeout_ms: int, validate_only: bool = False) -> TopicRecord:
        """Make the topic and wait until this broker sees it; its leaders are waited for a little, too.

        Raises `KafkaError`: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS (also while a topic of the name
        is being deleted), INVALID_CONFIG, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, REQUEST_TIMED_OUT.
        """
        self._check_name(topic.name)
        async with _deadline(timeout_ms), self._creating():
            # The store has the last word: another broker may have answered a client that the topic is gone.
            if self._view.topic(topic.name, include_deleting=True) is not None and await self._decide(
                lambda: self._is_taken(topic.name)
            ):
                raise _already_exists(topic.name)
            self._validate(topic.configs)
            count = partition_count_of(topic, self._settings.auto_create_partitions, self._broker_ids())
            record = TopicRecord(
                name=topic.name,
                topic_id=self._new_uuid(),
                partition_count=count,
                configs=dict(topic.configs),
            )
            if validate_only:
                return record
            revision = await self._decide(lambda: self._try_create(record))
            await self._view.wait_for(revision)
            await self._wait_for_leaders(record)
        _log.info("created topic %s with %d partitions, id %s", record.name, count, record.topic_id)
        return record

    @asynccontextmanager
    async def _creating(self) -> AsyncIterator[None]:
        self.creating_count += 1
        try:
            yield
        finally:
            self.creating_count -= 1

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> None:
        """Let the topic grow to `count` partitions.

        `assignments`: a manual assignment of the new partitions to brokers, checked and otherwise ignored.
        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
        REQUEST_TIMED_OUT.
        """
        async with _deadline(timeout_ms):
            _, topic = await self._decide(lambda: self._read_active(name))
            check_growth(topic, count, assignments, self._broker_ids())
            if validate_only:
                return
            attempts = _Attempts()
            revision = await self._decide(lambda: self._try_grow(name, count, attempts))
            await self._view.wait_for(revision)
            await self._wait_for_leaders(dataclasses.replace(topic, partition_count=count))
        _log.info("topic %s has %d partitions now", name, count)

    async def stored(self, names: Collection[str]) -> Mapping[str, TopicRecord]:
        """Those of these topics that are there, asked of the store: the view may not have heard of them yet.

        Raises store errors and `CorruptDataError`.
        """
        found = await stored_topics(self._store, names)
        topics = {name: decode_topic_record(item.key, item.value) for name, item in found.items()}
        return {name: record for name, record in topics.items() if record.state is TopicState.ACTIVE}

    async def alter_configs(
        self, name: str, change: ConfigChange, *, timeout_ms: int, validate_only: bool = False
    ) -> None:
        """Replace the topic's configs by what `change` makes of them.

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, REQUEST_TIMED_OUT, and what
        `change` raises.
        """
        async with _deadline(timeout_ms):
            revision = await self._decide(lambda: self._try_alter(name, change, validate_only))
            await self._view.wait_for(revision)

    async def delete(self, name: str, *, timeout_ms: int, topic_id: uuid.UUID | None = None) -> None:
        """Delete the topic and wait until its objects are gone and its name is free.

        This marks the topic, from when on no client sees it; `TopicDeletion` does the rest, also when
        REQUEST_TIMED_OUT was answered. Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
        (the name belongs to another topic than the one with `topic_id`), REQUEST_TIMED_OUT.
        """
        async with _deadline(timeout_ms):
            _, topic = await self._decide(lambda: self._read_active(name))
            if topic_id is not None and topic.topic_id != topic_id:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {topic_id}.")
            attempts = _Attempts()
            revision = await self._decide(lambda: self._try_mark(topic, attempts))
            _log.info("deleting topic %s, id %s", name, topic.topic_id)
            await self._view.wait_for(revision)
            await self._view.wait_until(lambda: not self._is_listed(topic))

    def _is_listed(self, topic: TopicRecord) -> bool:
        record = self._view.topic(topic.name, include_deleting=True)
        return record is not None and record.topic_id == topic.topic_id

    def _broker_ids(self) -> frozenset[int]:
        return frozenset(broker.broker_id for broker in self._view.brokers())

    def _check_name(self, name: str) -> None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.",
            )
        check_storable(name)
        check_collision(name, self._view.names_like(name))

    def _validate(self, configs: Mapping[str, str]) -> None:
        validate(configs, self._view.feature_level(SEGMENT_FORMAT))

    async def _wait_for_leaders(self, topic: TopicRecord) -> None:
        def has_leaders() -> bool:
            if self._view.topic_by_id(topic.topic_id) is None or not self._view.brokers_to_read_from():
                return True  # No broker will lead it: it is deleted, or all brokers stop.
            leaders = self._view.leaders(topic.name)
            return all(index in leaders for index in range(topic.partition_count))

        with suppress(TimeoutError):
            async with asyncio.timeout(self._leader_wait_ms / 1000):
                await self._view.wait_until(has_leaders)

    async def _decide(self, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """Repeat `attempt`, which reads before it writes, until it has a result; None: something changed."""
        while True:
            try:
                result = await attempt()
            except StoreError as problem:
                _log.warning("the metadata store failed, reading it again: %s", problem)
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if result is not None:
                return result

    async def _is_taken(self, name: str) -> bool:
        return await self._store.get(keys.topic(name)) is not None

    async def _try_create(self, record: TopicRecord) -> int | None:
        held = await self._store.get(keys.topic(record.name))
        if held is not None:
            with suppress(CorruptDataError):
                if decode_topic_record(held.key, held.value).topic_id == record.topic_id:
                    return held.mod_revision  # an earlier attempt of ours had landed
            raise _already_exists(record.name)
        return await self._write(record, ABSENT, 0)

    async def _try_grow(self, name: str, count: int, attempts: "_Attempts") -> int | None:
        held, current = await self._read_active(name)
        if attempts.any and current.partition_count == count:
            return held.mod_revision  # an earlier attempt had landed
        check_growth(current, count, None, ())
        attempts.any = True
        after = dataclasses.replace(current, partition_count=count)
        return await self._write(after, held.mod_revision, current.partition_count)

    async def _try_alter(self, name: str, change: ConfigChange, validate_only: bool) -> int | None:
        held, current = await self._read_active(name)
        configs = dict(change(current.configs))
        self._validate(configs)
        if validate_only or configs == current.configs:
            return held.mod_revision
        return await self._put_topic(held.mod_revision, dataclasses.replace(current, configs=configs))

    async def _try_mark(self, topic: TopicRecord, attempts: "_Attempts") -> int | None:
        try:
            held, current = await self._read_active(topic.name)
        except KafkaError:
            if attempts.any:
                return 0  # an earlier attempt had landed
            raise
        if current.topic_id != topic.topic_id:
            return 0
        attempts.any = True
        return await self._put_topic(
            held.mod_revision,
            dataclasses.replace(
                current, state=TopicState.DELETING, deleting_broker_id=self._settings.broker_id
            ),
        )

    async def _read_active(self, name: str) -> tuple[KeyValue, TopicRecord]:
        # A name that no topic has may be any text, and is no part of a key.
        held = None if topic_name_problem(name) else await self._store.get(keys.topic(name))
        if held is not None:
            try:
                topic = decode_topic_record(held.key, held.value)
            except CorruptDataError as problem:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The record of topic {name!r} cannot be read."
                ) from problem
            if topic.state is TopicState.ACTIVE:
                return held, topic
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{quoted(name)}'.")

    async def _put_topic(self, revision: int, record: TopicRecord) -> int | None:
        key = keys.topic(record.name)
        result = await self._store.transact([Compare(key, revision)], [Put(key, encode_topic_record(record))])
        return result.revision if result.succeeded else None

    async def _write(self, record: TopicRecord, revision: int, first: int) -> int | None:
        """Put the partition records from `first` on, then the topic record, which stands at `revision`.

        None when the topic, its name's retired epoch or an orphaned partition record changed meanwhile.
        """
        retired_key, topic_key = keys.retired(record.name), keys.topic(record.name)
        retired = await self._store.get(retired_key)
        # Above the old topic's, before there is a leader: the old one's, which may have heard of nothing yet, must
        # not find its own epoch here (`LogManager.is_leader_still`).
        epoch = NO_EPOCH if retired is None else decode_retired_epoch(retired_key, retired.value) + 1
        orphans = await self._store.range(keys.partitions(record.name))
        held = {item.key: item.mod_revision for item in orphans.items}
        unchanged = [
            Compare(topic_key, revision),
            Compare(retired_key, ABSENT if retired is None else retired.mod_revision),
        ]
        empty = encode_partition_record(PartitionRecord(leader_epoch=epoch))
        pending = [keys.partition(record.name, index) for index in range(first, record.partition_count)]
        room = self._store.max_operations - len(unchanged)
        while True:
            part, pending = pending[:room], pending[room:]
            compares = [*unchanged, *(Compare(key, held.get(key, ABSENT)) for key in part)]
            puts = [Put(key, empty) for key in part]
            if not pending:
                puts.append(Put(topic_key, encode_topic_record(record)))
            result = await self._store.transact(compares, puts)
            if not result.succeeded:
                return None
            if not pending:
                return result.revision


def _already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


class _Attempts:
    """The writes of a call so far: after one, what the call finds may be its own doing."""

    __slots__ = ("any",)

    def __init__(self) -> None:
        self.any = False


@asynccontextmanager
async def _deadline(timeout_ms: int) -> AsyncIterator[None]:
    """Ends what runs in it with REQUEST_TIMED_OUT after `timeout_ms`, or `MIN_TIMEOUT_MS` if that is more."""
    try:
        async with asyncio.timeout(max(timeout_ms, MIN_TIMEOUT_MS) / 1000):
            yield
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"not done after {timeout_ms} ms; it may still be done"
        ) from None
