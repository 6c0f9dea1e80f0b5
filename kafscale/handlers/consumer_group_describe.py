"""ConsumerGroupDescribe (69), versions 0 and 1: groups of the consumer protocol, and what each member has (KIP-848).

v1: which protocol a member speaks (KIP-1099).
"""

from typing import TYPE_CHECKING, Final

from kafscale.groups.consumer.requests import DescribedConsumerGroup, DescribedConsumerMember
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.request_limits import check_named
from kafscale.handlers.consumer_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.authorized_operations import NOT_ASKED_FOR, group_operations
from kafscale.serving.described_topics import MAY_NOT_DESCRIBE, DescribedTopics
from kafscale.tasks.in_turns import Turns, in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Group = ConsumerGroupDescribeResponse.DescribedGroup
_Member = _Group.Member
_Assignment = _Member.Assignment

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_GROUPS_PER_TURN: Final = 8


async def handle(
    broker: "Broker", request: "RequestContext", message: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Each group once, however often it is named: an answer is larger than a name."""
    groups = [
        await _described(
            broker, request, group_id, with_operations=bool(message.include_authorized_operations)
        )
        async for group_id in in_turns(dict.fromkeys(message.group_ids), _GROUPS_PER_TURN)
    ]
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


async def _described(
    broker: "Broker", request: "RequestContext", group_id: str, *, with_operations: bool
) -> _Group:
    try:
        check_protocol(broker)
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        check_named(group_id)
        group = broker.groups.describe_consumer(group_id)
        names = DescribedTopics(broker, request)
        turns = Turns()
        members = [await _member(member, names, turns) for member in group.members]
        if names.hidden:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, MAY_NOT_DESCRIBE)
    except KafkaError as refusal:
        return _refused(refusal, group_id)
    operations = group_operations(request.access, group_id) if with_operations else NOT_ASKED_FOR
    return _answer(group, members, operations)


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


def _answer(group: DescribedConsumerGroup, members: list[_Member], operations: int) -> _Group:
    return _Group(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=members,
        authorized_operations=operations,
    )


async def _member(member: DescribedConsumerMember, names: DescribedTopics, turns: Turns) -> _Member:
    return _Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=await _assignment(member.assignment, names, turns),
        target_assignment=await _assignment(member.target_assignment, names, turns),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


async def _assignment(assignment: Assignment, names: DescribedTopics, turns: Turns) -> _Assignment:
    topics = []
    for topic_id, partitions in assignment.items():
        name = names.of(topic_id)
        if name is not None:
            topics.append(
                _Assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            )
        await turns.part_done()
    return _Assignment(topic_partitions=topics)
