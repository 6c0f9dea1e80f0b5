"""ShareFetch (78), versions 1 and 2: records for a member of a share group, which it has for a while (KIP-932).

v2: acquire modes (KIP-1206) and renewed locks (KIP-1222).
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import ShareFetchRequest
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.messages import decode_request
from kafscale.protocol.share_fetch import (
    AcquiredRange,
    SharedTopic,
    encode_share_fetch_response,
)
from kafscale.protocol.share_fetch import SharedPartition as AnsweredPartition
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.lasting_body import lasting
from kafscale.serving.new_leaders import NewLeaders
from kafscale.serving.reply_reads import ReplyReads
from kafscale.serving.sharing.acknowledgements import AskedBatch, Outcomes, acknowledge_all
from kafscale.serving.sharing.partition_read import SharedRead
from kafscale.serving.sharing.pending_share_fetch import Asked, Fetched, PendingShareFetch
from kafscale.serving.sharing.share_requests import named_partitions, session_key
from kafscale.serving.store_deadline import STORE_DEADLINE_SEC
from kafscale.share.partition.acquiring import AcquireMode
from kafscale.share.sessions import CLOSES, OPENS, SessionKey, SharedPartition, ShareSession
from kafscale.tasks.in_turns import in_turns

logger = logging.getLogger(__name__)

LARGE_BODY_BYTES: Final = 128 * 1024
"""A larger request is decoded in a thread."""

_MODES: Final = {0: AcquireMode.BATCH_OPTIMIZED, 1: AcquireMode.RECORD_LIMIT}
_NOTHING: Final = SharedRead()


def handle(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> Awaitable[None] | None:
    """Answer when there is something to acquire, or when the client's wait is over."""
    if len(body) > LARGE_BODY_BYTES:
        return _decode_in_thread(broker, request, memoryview(lasting(body)), reply)
    message = decode_request(ApiKey.SHARE_FETCH, request.api_version, body)
    _start(broker, request, message, reply)
    return None


async def _decode_in_thread(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> None:
    async with broker.decoding:
        message = await asyncio.to_thread(decode_request, ApiKey.SHARE_FETCH, request.api_version, body)
    _start(broker, request, message, reply)


def _start(broker: Broker, request: RequestContext, message: ShareFetchRequest, reply: Reply) -> None:
    task = broker.started.spawn(_answer(broker, request, message, reply), "share fetch")
    reply.abandoned = lambda: _cancel(task)


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


async def _answer(broker: Broker, request: RequestContext, message: ShareFetchRequest, reply: Reply) -> None:
    try:
        check_protocol(broker)
        key = session_key(request, message.group_id, message.member_id)
        said = await _said(message)
        _check(message, said)
        session = broker.sharing.session(key, message.share_session_epoch, request.software)
    except KafkaError as refusal:
        _refuse(request, reply, refusal)
        return
    try:
        outcomes, fetched = await _serve(broker, request, message, key, session, said)
    except KafkaError as refusal:
        _refuse(request, reply, refusal)
        return
    except Exception:
        logger.exception("could not answer a share fetch", extra={"client": request.client_host})
        reply.end_connection()
        return
    _send(broker, request, message, reply, key, outcomes, fetched)


def _refuse(request: RequestContext, reply: Reply, refusal: KafkaError) -> None:
    frame = encode_share_fetch_response(request.correlation_id, refusal.code, refusal.message or None, 0, [])
    reply.send(frame, error_code=refusal.code)


async def _said(message: ShareFetchRequest) -> dict[SharedPartition, Sequence[AskedBatch]]:
    """The acknowledgements of each partition that is named; one that is named twice counts once."""
    said: dict[SharedPartition, Sequence[AskedBatch]] = {}
    async for place, batches in in_turns(named_partitions(message.topics)):
        said.setdefault(place, batches)
    return said


def _check(message: ShareFetchRequest, said: dict[SharedPartition, Sequence[AskedBatch]]) -> None:
    """Raises `KafkaError` INVALID_REQUEST."""
    if message.share_acquire_mode not in _MODES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"ShareAcquireMode {message.share_acquire_mode} is not 0 or 1."
        )
    if message.share_session_epoch == OPENS and any(said.values()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A request that opens a share session acknowledges nothing."
        )
    if message.is_renew_ack and message.max_records > 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that renews locks fetches no records.")


async def _serve(
    broker: Broker,
    request: RequestContext,
    message: ShareFetchRequest,
    key: SessionKey,
    session: ShareSession,
    said: dict[SharedPartition, Sequence[AskedBatch]],
) -> tuple[Outcomes, Fetched]:
    service = broker.sharing
    outcomes = await acknowledge_all(
        service,
        request,
        key,
        {place: batches for place, batches in said.items() if batches},
        may_renew=message.is_renew_ack,
        wait_sec=STORE_DEADLINE_SEC,
    )
    if message.share_session_epoch == CLOSES:
        await service.close_session(session)
        return outcomes, Fetched()
    forgotten = [
        (topic.topic_id, index)
        for topic in message.forgotten_topics_data
        if topic.topic_id is not None
        for index in topic.partitions
    ]
    service.sessions.change(session, said, forgotten)
    asked = Asked(
        key=key,
        partitions=session.in_turn(),
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=(
            message.max_bytes
            if request.throttle is None
            else request.throttle.limited_bytes(message.max_bytes)
        ),
        max_records=message.max_records,
        batch_size=message.batch_size,
        mode=_MODES[message.share_acquire_mode],
    )
    pending = PendingShareFetch(broker, service, asked, _denied(broker, request, asked.partitions))
    fetched = await pending.run()
    if message.share_session_epoch == OPENS:
        for place in said:
            if place not in fetched.errors:
                fetched.reads.setdefault(place, _NOTHING)
    return outcomes, fetched


def _denied(
    broker: Broker, request: RequestContext, places: Iterable[SharedPartition]
) -> dict[SharedPartition, KafkaError]:
    access = request.access
    if not access.is_restricted:
        return {}
    denied = {}
    for place in places:
        name = broker.sharing.name_of(place[0])
        if name is not None and not access.allows(Operation.READ, ResourceType.TOPIC, name):
            denied[place] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return denied


def _send(
    broker: Broker,
    request: RequestContext,
    message: ShareFetchRequest,
    reply: Reply,
    key: SessionKey,
    outcomes: Outcomes,
    fetched: Fetched,
) -> None:
    leaders = NewLeaders(broker.view, request.listener)
    topics: dict[bytes, list[AnsweredPartition]] = {}
    held = ReplyReads(())
    for place in dict.fromkeys((*fetched.errors, *fetched.reads, *outcomes)):
        shared = fetched.reads.get(place, _NOTHING)
        answered = _partition(place, shared, fetched.errors.get(place), outcomes.get(place), leaders)
        topics.setdefault(place[0].bytes, []).append(answered)
        if shared.acquired:
            held.add(shared.read)
            name = broker.sharing.name_of(place[0])
            if name is not None:
                counters = broker.metrics.topic(name)
                counters.bytes_out += shared.read.size_bytes
                counters.records_out += shared.read.record_count
    buffers = encode_share_fetch_response(
        request.correlation_id,
        ErrorCode.NONE,
        None,
        broker.sharing.policy(key.group_id).limits.lock_duration_ms,
        [SharedTopic(topic_id, partitions) for topic_id, partitions in topics.items()],
        leaders.endpoints,
    )
    if request.throttle is not None:
        request.throttle.shared(sum(map(len, buffers)))
    reply.send(buffers, held)


def _partition(
    place: SharedPartition,
    shared: SharedRead,
    error: KafkaError | None,
    refusal: KafkaError | None,
    leaders: NewLeaders,
) -> AnsweredPartition:
    code = ErrorCode.NONE if error is None else error.code
    refusal_code = ErrorCode.NONE if refusal is None else refusal.code
    leader_id, leader_epoch = leaders.of_topic_id(*place, code)
    return AnsweredPartition(
        place[1],
        code,
        None if error is None else error.message or None,
        refusal_code,
        None if refusal is None else refusal.message or None,
        shared.read.views,
        shared.read.size_bytes,
        [AcquiredRange(one.first, one.last, one.delivery_count) for one in shared.acquired],
        leader_id,
        leader_epoch,
    )
