"""ShareAcknowledge (79), versions 1 and 2: how a member of a share group is done with records (KIP-932).

v2: renewed locks (KIP-1222).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.api_messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.new_leaders import NewLeaders
from kafscale.serving.sharing.acknowledgements import AskedBatch, Outcomes, acknowledge_all
from kafscale.serving.sharing.share_requests import named_partitions, session_key
from kafscale.serving.store_deadline import STORE_DEADLINE_SEC
from kafscale.share.sessions import CLOSES, OPENS, SharedPartition
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
_Partition = _Topic.PartitionData
_Leader = _Partition.LeaderIdAndEpoch


async def handle(
    broker: "Broker", request: "RequestContext", message: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Answer when what the member says is durable, for each partition."""
    service = broker.sharing
    try:
        check_protocol(broker)
        key = session_key(request, message.group_id, message.member_id)
        if message.share_session_epoch == OPENS:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "An acknowledgement opens no share session."
            )
        session = service.sessions.go_on(key, message.share_session_epoch)
    except KafkaError as refusal:
        return ShareAcknowledgeResponse(
            error_code=refusal.code, error_message=refusal.message or None, responses=[], node_endpoints=[]
        )
    said: dict[SharedPartition, Sequence[AskedBatch]] = {}
    async for place, batches in in_turns(named_partitions(message.topics)):
        if batches:
            said.setdefault(place, batches)
    outcomes = await acknowledge_all(
        service, request, key, said, may_renew=message.is_renew_ack, wait_sec=STORE_DEADLINE_SEC
    )
    if message.share_session_epoch == CLOSES:
        await service.close_session(session)
    leaders = NewLeaders(broker.view, request.listener)
    responses = _responses(outcomes, leaders)
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        acquisition_lock_timeout_ms=service.policy(key.group_id).limits.lock_duration_ms,
        responses=responses,
        node_endpoints=[
            ShareAcknowledgeResponse.NodeEndpoint(
                node_id=one.node_id, host=one.host, port=one.port, rack=one.rack
            )
            for one in leaders.endpoints
        ],
    )


def _responses(outcomes: Outcomes, leaders: NewLeaders) -> list[_Topic]:
    topics: dict[object, _Topic] = {}
    for place, refusal in outcomes.items():
        topic = topics.get(place[0])
        if topic is None:
            topic = topics[place[0]] = _Topic(topic_id=place[0], partitions=[])
        code = ErrorCode.NONE if refusal is None else refusal.code
        leader_id, leader_epoch = leaders.of_topic_id(*place, code)
        topic.partitions.append(
            _Partition(
                partition_index=place[1],
                error_code=code,
                error_message=None if refusal is None else refusal.message or None,
                current_leader=_Leader(leader_id=leader_id, leader_epoch=leader_epoch),
            )
        )
    return list(topics.values())
