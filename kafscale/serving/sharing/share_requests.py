"""Common parts of ShareFetch and ShareAcknowledge: who asks, what is named, and who leads it."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.share_fetch import NO_LEADER, NodeEndpoint
from kafscale.serving.authorization import check_access
from kafscale.serving.context import Broker, RequestContext
from kafscale.serving.sharing.acknowledgements import AskedBatch
from kafscale.share.sessions import SessionKey, SharedPartition

MEMBER_ID_MAX_CHARS: Final = 36

_NO_TOPIC: Final = uuid.UUID(int=0)
_NO_EPOCH: Final = -1
_NAMES_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class NamedPartition(Protocol):
    """A partition as a request names it."""

    partition_index: int

    @property
    def acknowledgement_batches(self) -> Iterable[AskedBatch]:
        """Those of the partition."""


class NamedTopic(Protocol):
    """A topic as a request names it."""

    topic_id: uuid.UUID | None

    @property
    def partitions(self) -> Iterable[NamedPartition]:
        """Those that are named."""


def session_key(request: RequestContext, group_id: str | None, member_id: str | None) -> SessionKey:
    """Who asks. Raises `KafkaError`: GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    check_access(request, Operation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_MAX_CHARS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"MemberId has from 1 to {MEMBER_ID_MAX_CHARS} characters."
        )
    return SessionKey(group_id, member_id)


def named_partitions(topics: Iterable[NamedTopic]) -> Iterator[tuple[SharedPartition, list[AskedBatch]]]:
    """Each partition as often as it is named."""
    for topic in topics:
        topic_id = topic.topic_id or _NO_TOPIC
        for partition in topic.partitions:
            yield (topic_id, partition.partition_index), list(partition.acknowledgement_batches)


class LeadersNamed:
    """The leaders that an answer names where this broker is not the one, and where they are."""

    def __init__(self, broker: Broker, request: RequestContext) -> None:
        self._broker = broker
        self._request = request
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """Of all leaders named so far."""
        return tuple(self._endpoints.values())

    def of(self, place: SharedPartition, error_code: int) -> tuple[int, int]:
        """The partition's leader and its epoch, if the error is that this broker is not it."""
        topic = self._broker.view.topic_by_id(place[0])
        if error_code not in _NAMES_LEADER or topic is None:
            return NO_LEADER, _NO_EPOCH
        leader = self._broker.view.leader(topic.name, place[1])
        found = None if leader is None else self._broker.view.broker(leader.broker_id)
        endpoint = None if found is None else found.endpoint(self._request.listener)
        if leader is None or found is None or endpoint is None:
            return NO_LEADER, _NO_EPOCH
        self._endpoints[found.broker_id] = NodeEndpoint(
            found.broker_id, endpoint.host, endpoint.port, found.rack
        )
        return leader.broker_id, leader.leader_epoch
