"""Rules for the claims of a token of OAUTHBEARER whose signature is right (KIP-255, KIP-768). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kafscale.errors import KafscaleError
from kafscale.formats.user_record import MAX_NAME_CHARACTERS

_MAX_TIME_SEC: Final = 2**40


class TokenError(KafscaleError):
    """A token is refused. The message is for the log, without the token; `status` is for the client."""

    status = "invalid_token"


class UnknownKeyError(TokenError):
    """The token names a key that is not in the set: it may be there when the set is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The demands on a token. Without an audience it must have none (RFC 7519, 4.1.3); an issuer None allows any."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    skew_sec: int = 30


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The user that a token names, and when the token expires, Unix milliseconds."""

    name: str
    expires_ms: int


class TokenVerifier(Protocol):
    """Says whose a token is."""

    async def verify(self, token: str) -> VerifiedToken:
        """The token's user. Raises `TokenError`."""


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_sec: int) -> VerifiedToken:
    """The user that the claims name. Raises `TokenError` with the claim that is wrong."""
    name = claims.get(rules.sub_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_CHARACTERS:
        raise TokenError(f"the token's claim {rules.sub_claim!r} is no name")
    expires_sec = _time(claims, "exp")
    if expires_sec is None:
        raise TokenError("the token has no claim 'exp'")
    if expires_sec + rules.skew_sec <= now_sec:
        raise TokenError("the token has expired")
    if claims.get("iat") is None:
        raise TokenError("the token has no claim 'iat'")
    for claim in ("iat", "nbf"):
        begins_sec = _time(claims, claim)
        if begins_sec is not None and begins_sec > now_sec + rules.skew_sec:
            raise TokenError(f"the token's claim {claim!r} is in the future")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenError("the token has another issuer")
    _check_audience(claims.get("aud"), rules.audience)
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return VerifiedToken(name.strip(), int(expires_sec * 1000))


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_TIME_SEC:
        raise TokenError(f"the token's claim {claim!r} is no time")
    return float(value)


def _check_audience(found: Any, expected: tuple[str, ...]) -> None:
    if not expected and found is None:
        return
    audience = [found] if isinstance(found, str) else found
    if not isinstance(audience, list) or not any(one in expected for one in audience if isinstance(one, str)):
        raise TokenError("the token is for another audience")


def _check_scope(found: Any, claim: str) -> None:
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    if found is not None and not isinstance(found, str) and not is_list:
        raise TokenError(f"the token's claim {claim!r} is neither a text nor a list of texts")
