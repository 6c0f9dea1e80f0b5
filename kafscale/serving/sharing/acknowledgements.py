"""The acknowledgements of a request: checked as Kafka checks them, and done once for each partition."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.context import RequestContext
from kafscale.serving.sharing.service import NOT_HOSTED, ShareService
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType
from kafscale.share.sessions import SessionKey, SharedPartition
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

_TYPES: Final = {int(one): one for one in AcknowledgeType}


class AskedBatch(Protocol):
    """A batch as a request has it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


Said = Mapping[SharedPartition, Sequence[AskedBatch]]
"""The acknowledgements of a member, by partition."""

Outcomes = dict[SharedPartition, KafkaError | None]
"""None: it is durable."""


async def acknowledge_all(
    service: ShareService,
    request: RequestContext,
    key: SessionKey,
    said: Said,
    *,
    may_renew: bool,
    wait_sec: float,
) -> Outcomes:
    """Do what the member says of each partition; returns when all is durable, or refused, or the wait is over.

    What is refused changes nothing. REQUEST_TIMED_OUT: it may become durable all the same.
    """
    outcomes: Outcomes = {}

    async def acknowledge(place: SharedPartition) -> None:
        try:
            batches = await _checked(said[place], may_renew)
            async with asyncio.timeout(wait_sec):
                led = await _open(service, request, key, place)
                await led.acknowledge(key.member_id, batches)
        except KafkaError as refusal:
            outcomes[place] = refusal
        except TimeoutError:
            outcomes[place] = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the metadata store did not answer in time: it may be done all the same",
            )
        else:
            outcomes[place] = None

    await for_each(list(said), acknowledge)
    return outcomes


async def _open(
    service: ShareService, request: RequestContext, key: SessionKey, place: SharedPartition
) -> LedSharePartition:
    """Raises `KafkaError`; of a partition that another broker leads, as Kafka does, that this one does not host it.

    A broker that loses it while an acknowledgement is being stored answers NOT_LEADER_OR_FOLLOWER.
    """
    try:
        partition = service.led(place)
        _check_access(request, partition.id.topic)
        return await service.shared(key.group_id, place, partition)
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED) from refusal


def _check_access(request: RequestContext, topic: str) -> None:
    access = request.access
    if access.is_restricted and not access.allows(Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


async def _checked(asked: Iterable[AskedBatch], may_renew: bool) -> list[AcknowledgedBatch]:
    """Raises `KafkaError` INVALID_REQUEST."""
    batches: list[AcknowledgedBatch] = []
    async for one in in_turns(asked):
        first, last, types = one.first_offset, one.last_offset, one.acknowledge_types
        if first > last:
            raise _invalid(f"it ends at {last} and begins at {first}")
        if batches and first < batches[-1].last:
            raise _invalid(f"it begins at {first}, the one before ends at {batches[-1].last}")
        if len(types) != 1 and len(types) != last - first + 1:
            raise _invalid(f"it has {last - first + 1} offsets and {len(types)} types")
        wrong = next((kind for kind in types if kind not in _TYPES), None)
        if wrong is not None:
            raise _invalid(f"acknowledge type {wrong} is not from 0 to 4")
        if not may_renew and AcknowledgeType.RENEW in types:
            raise _invalid("it renews, and the request does not say so")
        batches.append(AcknowledgedBatch(first, last, [_TYPES[kind] for kind in types]))
    return batches


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid acknowledgement batch: {problem}.")
