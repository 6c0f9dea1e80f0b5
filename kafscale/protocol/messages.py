"""Requests and responses of every API that needs no speed, as the message objects of `api_messages`.

Field names are Kafka's in snake case, nested structs are attributes of the message class. A field that the
decoded version does not have reads as its default. Null strings, bytes and arrays, and Kafka's zero UUID,
read as None. Strings and bytes are copies.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from kafscale.protocol.api_messages import Response
from kafscale.protocol.header import has_flexible_response_header, response_header
from kafscale.protocol.message_classes import REQUEST_CLASSES
from kafscale.protocol.request_decoder import build_request_decoder
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError

_LENGTH = struct.Struct(">i")


@cache
def _decoder(api_key: int, api_version: int) -> Callable[[bytes], Any]:
    request_class = REQUEST_CLASSES.get(api_key)
    if request_class is None or not 0 <= api_version <= request_class.max_version:
        raise ValueError(f"no codec for API {api_key} version {api_version}")
    return build_request_decoder(request_class, api_version)


def decode_request(api_key: int, api_version: int, body: memoryview) -> Any:
    """Decode a request's body (after the header) into its class of `api_messages`.

    Raises `MalformedRequestError` on any byte that breaks the schema, after work and allocation in proportion
    to the body, and `ValueError` for an API or version without a codec.
    """
    decode = _decoder(api_key, api_version)
    try:
        return decode(bytes(body))
    except (MalformedRequestError, *UNDERRUN_ERRORS) as error:
        raise MalformedRequestError(
            f"{REQUEST_CLASSES[api_key].__name__} v{api_version} of {len(body)} bytes: {error}"
        ) from error


def encode_response(message: Response, api_version: int, correlation_id: int) -> bytes:
    """Encode a kafka-python response object as a whole frame: 4-byte length, header, body.

    Raises `struct.error` when a value does not fit its field.
    """
    body = message.encode(version=api_version)
    header = response_header(correlation_id, has_flexible_response_header(message.API_KEY, api_version))
    return b"".join((_LENGTH.pack(len(header) + len(body)), header, body))
