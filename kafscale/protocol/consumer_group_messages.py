"""Messages of the consumer group protocol (KIP-848), which kafka-python lacks, from schemas of our own.

kafka-python has no types.
"""

from kafka.protocol.api_message import ApiMessage

from kafscale.protocol import schemas


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: a regular expression of topics (KIP-848), and member ids that the client makes (KIP-1082)."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: as v0."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: as v0."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: which protocol a member speaks (KIP-1099)."""


__all__ = [
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
]
