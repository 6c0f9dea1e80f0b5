"""Messages of share groups (KIP-932), which kafka-python lacks, from schemas of our own.

kafka-python has no types.
"""

from kafka.protocol.api_message import ApiMessage

from kafscale.protocol import schemas


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v0 is the only version."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v0 is the only version."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v0 is the only version."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v0 is the only version."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: as v0."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v1: the lag (KIP-1226)."""


class ShareAcknowledgeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v2: that records are renewed (KIP-1222)."""


class ShareAcknowledgeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v2: how long records are locked (KIP-1222)."""


class ShareFetchRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v2: acquire modes (KIP-1206), and that records are renewed (KIP-1222)."""


class ShareFetchResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """v2: as v1."""


class ShareGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Version 1 is the first that is stable."""


class ShareGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Version 1 is the first that is stable."""


class ShareGroupHeartbeatRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Version 1 is the first that is stable."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Version 1 is the first that is stable."""


__all__ = [
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
]
