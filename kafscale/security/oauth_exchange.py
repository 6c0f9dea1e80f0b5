"""The server's side of OAUTHBEARER (RFC 7628, KIP-255): the client's message, and the two ways that it ends."""

import json
import re
from dataclasses import dataclass, field
from typing import Final

from kafscale.security.oauth_rules import TokenError, TokenVerifier
from kafscale.security.sasl import Authenticated, AuthenticationError, Challenge, Step

MAX_TOKEN_CHARACTERS: Final = 48 * 1024
"""Below the largest request before authentication by default."""

_NAME = r"(?:[^=,\x00\x01]|=2C|=3D)*"
_PAIR = r"[A-Za-z]+=[\x21-\x7E \t\r\n]*"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR}\x01)*)\x01")
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[-_.~+/A-Za-z0-9]+=*)")
_END = b"\x01"


@dataclass(frozen=True, slots=True)
class OAuthMessage:
    """A token and the user that the client asks to be, empty for that of the token."""

    token: str = field(repr=False)
    authorization_id: str = ""


def parse_message(message: bytes) -> OAuthMessage:
    """The client's first message. Extensions are ignored, as by Kafka. Raises `AuthenticationError`."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationError("the client's message is malformed")
    values = [pair.partition("=")[2] for pair in found["pairs"].split("\x01") if pair.startswith("auth=")]
    bearer = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
    if bearer is None:
        raise AuthenticationError("the client's message has no bearer token")
    if len(bearer["token"]) > MAX_TOKEN_CHARACTERS:
        raise AuthenticationError("the client's token is too long")
    authorization_id = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthMessage(bearer["token"], authorization_id)


class OAuthExchange:
    """See `Exchange`. A token that is refused is answered with a JSON status, which the client confirms with ^A."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier
        self._refusal: str | None = None
        self._reason = ""

    async def respond(self, token: bytes) -> Step:
        """See `Exchange`."""
        if self._refusal is not None:
            raise AuthenticationError(self._reason, self._refusal)
        message = parse_message(token)
        try:
            verified = await self._verifier.verify(message.token)
        except TokenError as problem:
            self._reason = str(problem)
            self._refusal = json.dumps({"status": problem.status}, separators=(",", ":"))
            return Challenge(self._refusal.encode())
        if message.authorization_id and message.authorization_id != verified.name:
            raise AuthenticationError(
                "the client asks for an authorization id that is not its token's",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        return Authenticated(b"", verified.name, verified.expires_ms)
