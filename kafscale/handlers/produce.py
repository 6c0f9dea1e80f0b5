"""Produce (API 0): append in the order of arrival, reply when everything is published.

v0-2 carry message sets of magic 0 or 1, which are converted. v3: record batches (KIP-98), transactional id.
v7: zstd (KIP-110). v8: error messages (KIP-467). v9: flexible. v11: TRANSACTION_ABORTABLE is known. v12: the leader
adds partitions to the transaction (KIP-890). acks=1 waits like acks=all, since there is one
kind of acknowledgement, but not by the request's timeout. A request has one batch for a partition (decision 0041).
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress

from kafscale.cluster.leadership import TopicPartition
from kafscale.log.partition import Partition
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.produce import ProduceRequest, decode_produce_request
from kafscale.serving import store_deadline
from kafscale.serving.batch_checks import FIRST_VERSION_WITH_BATCHES
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.lasting_body import LASTING_BODY_BYTES, lasting
from kafscale.serving.leader_changes import MAX_WAIT_SEC
from kafscale.serving.produce_appender import ProduceAppender

logger = logging.getLogger(__name__)

# A body with more topics and partitions, or above `LASTING_BODY_BYTES`, is appended with pauses for other requests.
LARGE_PARTITION_COUNT = 1000


def handle(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> Awaitable[None] | None:
    """Append everything that `body` carries; `reply` is sent when it is published.

    An awaitable that is returned must be awaited before the connection's next request is handled. A body larger
    than `LASTING_BODY_BYTES` must stay unchanged until then, a smaller one only during the call.
    """
    produce = decode_produce_request(body, request.api_version)
    unopened = [
        partition
        for name, partitions in produce.topics
        for index, _ in partitions
        if (partition := broker.logs.partition(name, index)) is not None
        and partition.is_led
        and not broker.object_store_health.refuses_produce
        and _may_write(request, name)
        and broker.logs.open_now(partition) is None
    ]
    claimed = _claimed(broker, request, produce) if broker.logs.claims.are_any else []
    topics = produce.topics
    many = len(topics) + sum(len(partitions) for _, partitions in topics) > LARGE_PARTITION_COUNT
    if unopened or claimed or many or request.api_version < FIRST_VERSION_WITH_BATCHES:
        return _open_and_handle(broker, request, memoryview(lasting(body)), reply, unopened, claimed)
    appender = ProduceAppender(broker, request, produce, reply)
    if len(body) > LASTING_BODY_BYTES:
        return appender.append_with_pauses()
    return appender.append_all()


async def _open(broker: Broker, partition: Partition) -> None:
    async with store_deadline.store_deadline():
        await broker.logs.open(partition)


def _may_write(request: RequestContext, topic: str) -> bool:
    """True if there is a reason to prepare for the topic. The answer is the appender's."""
    access = request.access
    return not access.is_restricted or access.allows(Operation.WRITE, ResourceType.TOPIC, topic, quiet=True)


def _claimed(broker: Broker, request: RequestContext, produce: ProduceRequest) -> list[TopicPartition]:
    return list(
        dict.fromkeys(
            (name, index)
            for name, partitions in produce.topics
            for index, _ in partitions
            if (name, index) in broker.logs.claims and _may_write(request, name)
        )
    )


async def _wait_for_claims(broker: Broker, claimed: list[TopicPartition]) -> list[Partition]:
    """Wait briefly for partitions that this broker is claiming: its clients may know already that it leads.

    Returns those that it leads by then.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_WAIT_SEC):
            for item in claimed:
                await broker.logs.claims.ended(item)
    found = (broker.logs.partition(topic, index) for topic, index in claimed)
    return [partition for partition in found if partition is not None]


async def _open_and_handle(
    broker: Broker,
    request: RequestContext,
    body: memoryview,
    reply: Reply,
    unopened: list[Partition],
    claimed: list[TopicPartition],
) -> None:
    if claimed:
        unopened = [*unopened, *await _wait_for_claims(broker, claimed)]
    unopened = list(dict.fromkeys(unopened))
    opened = await asyncio.gather(
        *(_open(broker, partition) for partition in unopened), return_exceptions=True
    )
    for partition, problem in zip(unopened, opened, strict=True):
        if isinstance(problem, BaseException):
            # Its log stays closed: the partition is refused below, and the next request tries again.
            logger.warning(
                "could not open a log", extra={"partition": str(partition.id), "problem": str(problem)}
            )
    produce = decode_produce_request(body, request.api_version)
    await ProduceAppender(broker, request, produce, reply).append_with_pauses()
