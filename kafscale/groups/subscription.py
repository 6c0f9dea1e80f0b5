"""The topics that the members of a consumer group subscribe to."""

from typing import Final

from kafscale.groups.any_group import AnyGroup
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.share.share_group import ShareGroup
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, check_count, read_string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_BYTES = 2
_COUNT_BYTES = 4
_SMALLEST_STRING_BYTES = 2
_MAX_TOPICS = 100_000


def subscribed_topics(group: AnyGroup) -> frozenset[str] | None:
    """The topics of all members; None if it is no group of consumers, or a subscription cannot be read.

    Every version of a consumer's subscription begins with its version and its topics.
    """
    if isinstance(group, ConsumerGroup):
        return None if group.unresolved() else group.subscribed_topics()
    if isinstance(group, ShareGroup):
        return group.subscribed_topics()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            topics.update(_topics(member.metadata(group.protocol_name)))
    except (MalformedRequestError, *UNDERRUN_ERRORS):
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    position = _VERSION_BYTES + _COUNT_BYTES
    if len(metadata) < position:
        raise MalformedRequestError(f"a subscription of {len(metadata)} bytes is too short")
    count = int.from_bytes(metadata[_VERSION_BYTES:position], "big", signed=True)
    check_count(count, _SMALLEST_STRING_BYTES, metadata, position, _MAX_TOPICS)
    topics = []
    for _ in range(count):
        topic, position = read_string(metadata, position, "a subscribed topic")
        topics.append(topic)
    return topics
