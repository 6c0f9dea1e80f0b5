"""Signatures of tokens of OAUTHBEARER: JWTs (RFC 7519) that one of an issuer's public keys has signed.

joserfc parses and checks; it is loaded only where OAUTHBEARER is on. Algorithms are those with public keys alone: a
token that names `none`, or an algorithm with a shared secret, is refused before a key is looked for.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet
from joserfc.jws import JWSRegistry

from kafscale.security.oauth_rules import (
    TokenError,
    TokenRules,
    UnknownKeyError,
    VerifiedToken,
    check_claims,
)

KEY_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
}
"""The type of key for each algorithm that a token may have."""

_MAX_HEADER_CHARACTERS: Final = 16 * 1024
_MAX_PAYLOAD_CHARACTERS: Final = 48 * 1024


class KeySource(Protocol):
    """The keys of a token's issuer."""

    @property
    def keys(self) -> KeySet | None:
        """The last set that could be read, None before."""

    async def read_again(self) -> bool:
        """Read the keys again because one is missing; False if that was done a moment ago. Never raises."""


class SignatureVerifier:
    """See `TokenVerifier`: with the keys of a source."""

    def __init__(self, rules: TokenRules, source: KeySource, now_ms: Callable[[], int]) -> None:
        """`now_ms`: Unix milliseconds."""
        self._rules = rules
        self._source = source
        self._now_ms = now_ms

    async def verify(self, token: str) -> VerifiedToken:
        """See `TokenVerifier`."""
        try:
            return self._verify(token)
        except UnknownKeyError:
            if not await self._source.read_again():
                raise
        return self._verify(token)

    def _verify(self, token: str) -> VerifiedToken:
        keys = self._source.keys
        if keys is None:
            raise UnknownKeyError("the keys of the tokens' issuer have not been read yet")
        return check_claims(signed_claims(token, keys), self._rules, self._now_ms() // 1000)


def signed_claims(token: str, keys: KeySet) -> Mapping[str, Any]:
    """The claims of a token that one of the keys has signed. Raises `TokenError`."""

    def key_of(signed: Any) -> Key:
        header = signed.headers()
        return _key(header.get("alg"), header.get("kid"), keys)

    registry = JWSRegistry(algorithms=list(KEY_TYPES))
    registry.max_header_length, registry.max_payload_length = _MAX_HEADER_CHARACTERS, _MAX_PAYLOAD_CHARACTERS
    try:
        return jwt.decode(token, key_of, algorithms=list(KEY_TYPES), registry=registry).claims
    except TokenError:
        raise
    # Broad, because what is parsed is an untrusted client's; the library's messages may quote the token.
    except (JoseError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as problem:
        raise TokenError(
            f"the token is malformed, or its signature wrong ({type(problem).__name__})"
        ) from None


def _key(algorithm: object, key_id: object, keys: KeySet) -> Key:
    """The key that a token names. One without a name is checked only by an issuer's only key of that type."""
    key_type = KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
    if key_type is None:
        raise TokenError("the token's algorithm is not one of those with public keys")
    fitting = [key for key in keys.keys if key.key_type == key_type and key.get("use") in (None, "sig")]
    if key_id is not None:
        fitting = [key for key in fitting if key.kid == key_id]
    if not fitting:
        raise UnknownKeyError("the token names a key that its issuer does not have")
    if len(fitting) > 1:
        raise TokenError("the token does not say which key it is signed with")
    return fitting[0]
