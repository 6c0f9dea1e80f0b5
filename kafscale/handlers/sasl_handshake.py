"""SaslHandshake (17), versions 0 and 1: the client names a SASL mechanism (KIP-43).

v1: the tokens that follow are wrapped in SaslAuthenticate (KIP-152); after v0 they are frames of their own. While a
client of a SASL listener is not authenticated, the connection's gate answers (`server/sasl_gate.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafscale.protocol.api_messages import SaslHandshakeRequest, SaslHandshakeResponse
from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


def handle(
    broker: "Broker", request: "RequestContext", message: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Refuse it: the listener has no SASL, or the client is authenticated already."""
    return illegal_state()


def illegal_state() -> SaslHandshakeResponse:
    """The answer where no handshake may be."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def response(enabled: Sequence[str], mechanism: str) -> SaslHandshakeResponse:
    """The answer where a handshake may be: the enabled mechanisms, and an error if the client's is not one."""
    code = ErrorCode.NONE if mechanism in enabled else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=list(enabled))
