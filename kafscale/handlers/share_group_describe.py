"""ShareGroupDescribe (77), version 1: share groups, and what each member reads (KIP-932)."""

from typing import TYPE_CHECKING, Final

from kafscale.groups.request_limits import check_named
from kafscale.groups.share.requests import DescribedShareMember
from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.authorized_operations import NOT_ASKED_FOR, group_operations
from kafscale.serving.described_topics import MAY_NOT_DESCRIBE, DescribedTopics
from kafscale.tasks.in_turns import Turns, in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Group = ShareGroupDescribeResponse.DescribedGroup
_Member = _Group.Member
_Assignment = _Member.Assignment

_GROUPS_PER_TURN: Final = 8


async def handle(
    broker: "Broker", request: "RequestContext", message: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Each group once, however often it is named: an answer is larger than a name."""
    groups = [
        await _described(
            broker, request, group_id, with_operations=bool(message.include_authorized_operations)
        )
        async for group_id in in_turns(dict.fromkeys(message.group_ids), _GROUPS_PER_TURN)
    ]
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


async def _described(
    broker: "Broker", request: "RequestContext", group_id: str, *, with_operations: bool
) -> _Group:
    try:
        check_protocol(broker)
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        check_named(group_id)
        group = broker.groups.describe_share(group_id)
        topics, turns = DescribedTopics(broker, request), Turns()
        members = [await _member(member, topics, turns) for member in group.members]
        if topics.hidden:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, MAY_NOT_DESCRIBE)
    except KafkaError as refusal:
        return _refused(refusal, group_id)
    return _Group(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=members,
        authorized_operations=(
            group_operations(request.access, group_id) if with_operations else NOT_ASKED_FOR
        ),
    )


def _refused(refusal: KafkaError, group_id: str) -> _Group:
    return _Group(
        error_code=refusal.code,
        error_message=refusal.message or None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_ASKED_FOR,
    )


async def _member(member: DescribedShareMember, topics: DescribedTopics, turns: Turns) -> _Member:
    assigned = []
    for topic_id, partitions in member.assignment.items():
        name = topics.of(topic_id)
        if name is not None:
            assigned.append(
                _Assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            )
        await turns.part_done()
    return _Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=_Assignment(topic_partitions=assigned),
    )
