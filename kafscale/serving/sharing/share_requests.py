"""Common parts of ShareFetch and ShareAcknowledge: who asks, and what is named."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.context import RequestContext
from kafscale.serving.sharing.acknowledgements import AskedBatch
from kafscale.share.sessions import SessionKey, SharedPartition

MEMBER_ID_MAX_CHARS: Final = 36

_NO_TOPIC: Final = uuid.UUID(int=0)


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
