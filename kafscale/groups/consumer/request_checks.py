"""Checks of a ConsumerGroupHeartbeat that need nothing but the request: Kafka's, in its words, and our limits."""

from collections.abc import Collection, Iterable
from typing import Final

from kafscale.groups.consumer.requests import ConsumerHeartbeat
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

MAX_SUBSCRIBED_TOPICS: Final = 10_000
"""Topics that one member may name."""

MAX_SUBSCRIPTION_BYTES: Final = 512 * 1024
"""Their names together: a member's record has to fit a request to etcd."""

_FIRST_VERSION_WITH_OWN_MEMBER_ID: Final = 1


def check_member_id(member_id: str, api_version: int) -> None:
    """Raises `KafkaError` INVALID_REQUEST for no member id where the client makes it, from v1 on (KIP-1082)."""
    if api_version >= _FIRST_VERSION_WITH_OWN_MEMBER_ID:
        _check_not_blank("MemberId", member_id)


def check_heartbeat(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raises `KafkaError` INVALID_REQUEST, INVALID_GROUP_ID, or UNSUPPORTED_ASSIGNOR for one not in `assignors`."""
    if request.member_epoch > JOIN_EPOCH or request.member_epoch == LEAVE_EPOCH:
        _check_not_blank("MemberId", request.member_id)
    _check_not_blank("GroupId", request.group_id)
    _check_not_blank("InstanceId", request.instance_id)
    _check_not_blank("RackId", request.rack_id)
    _check_epoch(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {quoted(request.server_assignor)} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    check_group_id(request.group_id)
    check_texts(request.member_id, request.instance_id, request.rack_id, request.client_id)
    _check_subscription(request.subscribed_topic_names or ())


def _check_epoch(request: ConsumerHeartbeat) -> None:
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _check_join(request: ConsumerHeartbeat) -> None:
    """A member that joins says everything. Without topics it is a member that has no partitions."""
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT_MS:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _check_subscription(names: Collection[str]) -> None:
    if len(names) > MAX_SUBSCRIBED_TOPICS:
        raise _invalid(
            f"SubscribedTopicNames has {len(names)} topics, at most {MAX_SUBSCRIBED_TOPICS} are allowed; "
            "a regular expression may describe more."
        )
    size_bytes = _size_bytes(names)
    if size_bytes > MAX_SUBSCRIPTION_BYTES:
        raise _invalid(
            f"SubscribedTopicNames has {size_bytes} bytes, at most {MAX_SUBSCRIPTION_BYTES} are allowed; "
            "a regular expression may describe more."
        )


def _size_bytes(names: Iterable[str]) -> int:
    return sum(len(name.encode()) for name in names)


def _check_not_blank(field: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
