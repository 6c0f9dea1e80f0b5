"""Checks of a ConsumerGroupHeartbeat that need nothing but the request: Kafka's, in its words, and our limits."""

from collections.abc import Collection
from typing import Final

from kafscale.groups.consumer.requests import ConsumerHeartbeat
from kafscale.groups.modern.field_checks import check_not_blank, check_subscription, invalid
from kafscale.groups.request_limits import check_group_id, check_texts
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

JOIN_EPOCH: Final = 0
"""The member epoch of one that joins the group, or joins it again."""

LEAVE_EPOCH: Final = -1
"""The member epoch of one that leaves the group."""

LEAVE_STATIC_EPOCH: Final = -2
"""The member epoch of a static member that leaves and will be back."""

NO_REBALANCE_TIMEOUT_MS: Final = -1
"""The rebalance timeout of a heartbeat that does not change it."""

_FIRST_VERSION_WITH_OWN_MEMBER_ID: Final = 1


def check_member_id(member_id: str, api_version: int) -> None:
    """Raises `KafkaError` INVALID_REQUEST for no member id where the client makes it, from v1 on (KIP-1082)."""
    if api_version >= _FIRST_VERSION_WITH_OWN_MEMBER_ID:
        check_not_blank("MemberId", member_id)


def check_heartbeat(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raises `KafkaError` INVALID_REQUEST, INVALID_GROUP_ID, or UNSUPPORTED_ASSIGNOR for one not in `assignors`."""
    if request.member_epoch > JOIN_EPOCH or request.member_epoch == LEAVE_EPOCH:
        check_not_blank("MemberId", request.member_id)
    check_not_blank("GroupId", request.group_id)
    check_not_blank("InstanceId", request.instance_id)
    check_not_blank("RackId", request.rack_id)
    _check_epoch(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {quoted(request.server_assignor)} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    check_group_id(request.group_id)
    check_texts(request.member_id, request.instance_id, request.rack_id, request.client_id)
    check_subscription(request.subscribed_topic_names or (), "; a regular expression may describe more")


def _check_epoch(request: ConsumerHeartbeat) -> None:
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise invalid("MemberEpoch is invalid.")


def _check_join(request: ConsumerHeartbeat) -> None:
    """A member that joins says everything. Without topics it is a member that has no partitions."""
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT_MS:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )
