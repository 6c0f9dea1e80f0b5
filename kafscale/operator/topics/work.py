"""Creates, changes and deletes topics in the metadata store, with the brokers' code."""

import asyncio
import dataclasses
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kafscale.cluster.new_topic import NewTopic
from kafscale.cluster.topics import Topics
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, TopicRecord, TopicState
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.topics.plan import TopicPlan, plan_topic
from kafscale.operator.topics.spec import TopicSpec
from kafscale.protocol.error_codes import ErrorCode, KafkaError

TIMEOUT_MS: Final = 10_000
REMOVAL_WAIT_MS: Final = 3_000
"""How long one call waits for a broker to delete a topic's records."""


class Removal(StrEnum):
    """Progress of a topic's deletion."""

    GONE = "gone"
    IN_PROGRESS = "in progress"
    ANOTHER = "another"
    """The name belongs to a different topic."""


class TopicWork:
    """Topics of one cluster. Every method raises `StoreError` and `OtherClusterError`."""

    def __init__(self, live: LiveCluster, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._live = live
        self._timeout_ms = timeout_ms
        self._topics = Topics(live.store, live.view, live.settings)

    async def find(self, name: str) -> TopicRecord | None:
        """Reads the topic, also while it is being deleted; None if there is none."""
        held = await self._live.store.get(keys.topic(name))
        return None if held is None else decode_topic_record(held.key, held.value)

    async def carry_out(self, wanted: TopicSpec, applied: Mapping[str, str], plan: TopicPlan) -> TopicRecord:
        """Carries out the plan; returns the topic. Concurrent changes of its configs are planned again.

        Raises `KafkaError`: the cluster's refusal, or REQUEST_TIMED_OUT if the change may still happen.
        """
        if plan.create:
            topic = NewTopic(name=wanted.name, partition_count=wanted.partition_count, configs=wanted.configs)
            return await self._topics.create(topic, timeout_ms=self._timeout_ms)
        if plan.partition_count is not None:
            await self._topics.create_partitions(
                wanted.name, plan.partition_count, timeout_ms=self._timeout_ms
            )
        if plan.set_configs or plan.reset_configs:

            def change(configs: Mapping[str, str]) -> Mapping[str, str]:
                found = TopicRecord(
                    name=wanted.name,
                    topic_id=uuid.UUID(int=0),
                    partition_count=wanted.partition_count,
                    configs=configs,
                )
                return plan_topic(wanted, applied, found).changed(configs)

            await self._topics.alter_configs(wanted.name, change, timeout_ms=self._timeout_ms)
        record = await self.find(wanted.name)
        if record is None or record.state is not TopicState.ACTIVE:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {wanted.name!r} was deleted meanwhile."
            )
        return record

    async def remove(self, name: str, topic_id: uuid.UUID | None) -> Removal:
        """Deletes the topic; a broker deletes its records. Call again while IN_PROGRESS.

        `topic_id` None: whichever topic has the name.
        """
        record = await self.find(name)
        if record is None:
            return Removal.GONE
        if topic_id is not None and record.topic_id != topic_id:
            return Removal.ANOTHER
        if record.state is TopicState.DELETING:
            return await self._wait_until_gone(record)
        settings = dataclasses.replace(self._live.settings, broker_id=self._remover())
        topics = Topics(self._live.store, self._live.view, settings)
        try:
            await topics.delete(name, topic_id=record.topic_id, timeout_ms=REMOVAL_WAIT_MS)
        except KafkaError as refusal:
            if refusal.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                return Removal.IN_PROGRESS  # a concurrent deletion: read again
            if refusal.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return Removal.IN_PROGRESS
        return Removal.GONE

    def _remover(self) -> int:
        """The broker that deletes the topic; without brokers, the first one to start takes over."""
        return next((broker.broker_id for broker in self._live.view.brokers_to_read_from()), NO_BROKER)

    async def _wait_until_gone(self, topic: TopicRecord) -> Removal:
        def is_gone() -> bool:
            record = self._live.view.topic(topic.name, include_deleting=True)
            return record is None or record.topic_id != topic.topic_id

        try:
            async with asyncio.timeout(REMOVAL_WAIT_MS / 1000):
                await self._live.view.wait_until(is_gone)
        except TimeoutError:
            return Removal.IN_PROGRESS
        return Removal.GONE if await self.find(topic.name) is None else Removal.IN_PROGRESS
