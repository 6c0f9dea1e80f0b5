"""The answer to a request of another kind where a client's SASL token is due: ILLEGAL_SASL_STATE, as in Kafka.

Clients that overlook a refused token go on with one of these requests. What no client sends then is not decoded
for an untrusted client, and has no answer.
"""

from typing import Final

from kafscale.handlers import sasl_handshake
from kafscale.handlers.routes import ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import ApiVersionsResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.header import RequestHeader
from kafscale.protocol.messages import decode_request, encode_response
from kafscale.protocol.metadata import NO_TOPIC_ID, MetadataTopic, encode_metadata_response, encode_topic

_CODE: Final = ErrorCode.ILLEGAL_SASL_STATE
_NO_CONTROLLER: Final = -1


def illegal_state_answer(header: RequestHeader, body: memoryview) -> bytes | None:
    """The frame to send, or None if there is no answer.

    Raises `MalformedRequestError` for a body that breaks the schema.
    """
    route = ROUTES_BY_KEY.get(header.api_key)
    if route is None or not route.min_version <= header.api_version <= route.max_version:
        return None
    match header.api_key:
        case ApiKey.SASL_HANDSHAKE:
            return encode_response(sasl_handshake.illegal_state(), header.api_version, header.correlation_id)
        case ApiKey.API_VERSIONS:
            answer = ApiVersionsResponse(error_code=_CODE, api_keys=[])
            return encode_response(answer, header.api_version, header.correlation_id)
        case ApiKey.METADATA:
            return _metadata(header, body)
    return None


def _metadata(header: RequestHeader, body: memoryview) -> bytes:
    """Every topic that the request names with the error, and no broker."""
    version = header.api_version
    asked = decode_request(header.api_key, version, body).topics or ()
    topics = [
        encode_topic(MetadataTopic(_CODE, one.name or "", one.topic_id or NO_TOPIC_ID, False, ()), version)
        for one in asked
    ]
    return encode_metadata_response(header.correlation_id, version, [], None, _NO_CONTROLLER, topics)
