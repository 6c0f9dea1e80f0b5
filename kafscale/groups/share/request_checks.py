"""Checks of a ShareGroupHeartbeat that need nothing but the request: Kafka's, in its words, and our limits."""

from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.groups.modern.field_checks import check_not_blank, check_subscription, invalid
from kafscale.groups.request_limits import check_group_id, check_texts
from kafscale.groups.share.requests import ShareHeartbeat


def check_share_heartbeat(request: ShareHeartbeat) -> None:
    """Raises `KafkaError` INVALID_REQUEST, INVALID_GROUP_ID. The client makes the member id, in every version."""
    check_not_blank("MemberId", request.member_id)
    check_not_blank("GroupId", request.group_id)
    check_not_blank("RackId", request.rack_id)
    if request.member_epoch < LEAVES:
        raise invalid(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to {LEAVES}."
        )
    if request.member_epoch == JOINS and not request.subscribed_topic_names:
        raise invalid("SubscribedTopicNames must be set in first request.")
    check_group_id(request.group_id)
    check_texts(request.member_id, request.rack_id, request.client_id)
    check_subscription(request.subscribed_topic_names or ())
