"""SaslAuthenticate (36), versions 0 to 2: a token of the mechanism that the handshake named (KIP-152).

v1: the session's lifetime, after which the client must authenticate itself again (KIP-368). v2: flexible. While a
client of a SASL listener is not authenticated, the connection's gate answers (`server/sasl_gate.py`).
"""

from typing import TYPE_CHECKING

from kafscale.protocol.api_messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


def handle(
    broker: "Broker", request: "RequestContext", message: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse it: the listener has no SASL, or the client is authenticated already."""
    return failure(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
    )


def response(token: bytes, session_lifetime_ms: int) -> SaslAuthenticateResponse:
    """A token for the client. `session_lifetime_ms`: 0 for no limit, and while there is no session."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        auth_bytes=token,
        session_lifetime_ms=session_lifetime_ms,
    )


def failure(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    """An error with a text for the client."""
    return SaslAuthenticateResponse(
        error_code=code, error_message=text, auth_bytes=b"", session_lifetime_ms=0
    )
