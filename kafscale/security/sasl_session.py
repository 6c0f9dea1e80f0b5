"""Which requests a connection of a SASL listener may send, and when its session ends: a pure state machine.

It is Kafka's `SaslServerAuthenticator`: ApiVersions, then a handshake that names the mechanism, then its tokens. With
a limited session the client authenticates itself once more before the end (KIP-368): a handshake, then tokens.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafscale.errors import KafscaleError
from kafscale.protocol.api_keys import ApiKey
from kafscale.security.principal import USER, Principal
from kafscale.security.sasl import Authenticated, AuthenticationError

MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1_000
_KNOWN_KEYS: Final = frozenset(map(int, ApiKey))
MAX_API_VERSIONS: Final = 4
"""A client asks again with another version where its first is not served."""


class SaslState(Enum):
    """The position of a connection in its authentication."""

    HANDSHAKE = auto()
    RAW_TOKENS = auto()
    TOKENS = auto()
    AUTHENTICATED = auto()
    ENDED = auto()


class IllegalStateError(KafscaleError):
    """The client sends what it may not send now. The connection is to be closed.

    `wants_answer`: the client has made its handshake; as in Kafka, it is answered before.
    """

    def __init__(self, problem: str, *, wants_answer: bool) -> None:
        super().__init__(problem)
        self.wants_answer = wants_answer


class SessionExpiredError(KafscaleError):
    """The client did not authenticate itself again in time. The connection is to be closed."""


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The end of an authentication. `lifetime_ms`: of the session, 0 for one without a limit.

    `is_again`: the client had authenticated itself on this connection before.
    """

    principal: Principal
    lifetime_ms: int
    is_again: bool


class SaslSession:
    """One connection's. Times are Unix milliseconds for credentials, and a steady clock's for the session.

    After each error the session has ended: nothing more may be served.
    """

    def __init__(self, max_reauth_ms: int) -> None:
        """`max_reauth_ms`: the longest session, 0 for no limit."""
        self._max_reauth_ms = max_reauth_ms
        self.state = SaslState.HANDSHAKE
        self.mechanism = ""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._refused_mechanism = ""
        self._api_versions_count = 0
        self._last_reauthentication_ms: int | None = None

    @property
    def is_again(self) -> bool:
        """True once the client has authenticated itself: what follows is a re-authentication."""
        return self.principal is not None

    @property
    def awaits_raw_token(self) -> bool:
        """True if the next frame is a token without a request around it: the handshake was of version 0."""
        return self.state is SaslState.RAW_TOKENS

    def request(self, api_key: int) -> None:
        """A request before the client is authenticated. Raises `IllegalStateError`."""
        state = self.state
        if api_key == ApiKey.API_VERSIONS and state is SaslState.HANDSHAKE and not self.is_again:
            self._api_versions_count += 1
            is_legal = self._api_versions_count <= MAX_API_VERSIONS
        elif api_key == ApiKey.SASL_HANDSHAKE:
            is_legal = state is SaslState.HANDSHAKE
        else:
            is_legal = api_key == ApiKey.SASL_AUTHENTICATE and state is SaslState.TOKENS
        if is_legal:
            return
        self.state = SaslState.ENDED
        phase = "authentication" if state in (SaslState.TOKENS, SaslState.RAW_TOKENS) else "handshake"
        # Such a number is no text of its own: as many as clients may send would each have a line in the log.
        what = f"API key {int(api_key)}" if api_key in _KNOWN_KEYS else "an unknown API"
        raise IllegalStateError(
            f"unexpected request of {what} during the SASL {phase}",
            wants_answer=state is SaslState.TOKENS,
        )

    def handshake(self, mechanism: str, *, wraps_tokens: bool) -> None:
        """The client names a mechanism that its listener has.

        `wraps_tokens`: tokens come in SaslAuthenticate (version 1 of the handshake). A mechanism that differs from
        that of the first authentication is refused with the first token, as in Kafka.
        """
        self.state = SaslState.TOKENS if wraps_tokens else SaslState.RAW_TOKENS
        if self.is_again and mechanism != self.mechanism:
            self._refused_mechanism = mechanism
        else:
            self.mechanism = mechanism

    def token(self) -> None:
        """A token has come. Raises `AuthenticationError`."""
        if self._refused_mechanism:
            problem = (
                f"SASL mechanism '{self._refused_mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self.mechanism}'"
            )
            raise AuthenticationError(problem, problem)

    def authenticated(self, step: Authenticated, *, now_ms: int, steady_ms: int) -> SessionStart:
        """The exchange has ended well. Raises `AuthenticationError` for another user than before."""
        principal = Principal(USER, step.name)
        if self.principal is not None and principal != self.principal:
            problem = f"Cannot change principals during re-authentication from {self.principal}: {principal}"
            raise AuthenticationError("another user than before", problem)
        is_again = self.is_again
        lifetime_ms = self._lifetime_ms(step.expires_ms, now_ms)
        self.expires_ms = None if lifetime_ms is None else steady_ms + lifetime_ms
        self.principal, self.state = principal, SaslState.AUTHENTICATED
        return SessionStart(principal, lifetime_ms or 0, is_again)

    def _lifetime_ms(self, credential_expires_ms: int | None, now_ms: int) -> int | None:
        limits = [self._max_reauth_ms] if self._max_reauth_ms > 0 else []
        if credential_expires_ms is not None:
            limits.append(max(0, credential_expires_ms - now_ms))
        return min(limits, default=None)

    def begin_again(self, steady_ms: int) -> bool:
        """True if a handshake begins a re-authentication now.

        False where the session has no limit, and less than a second after the last one began: then the handshake is
        an ordinary request, in an illegal state.
        """
        last_ms = self._last_reauthentication_ms
        if self.expires_ms is None or (
            last_ms is not None and steady_ms - last_ms < MIN_REAUTHENTICATION_INTERVAL_MS
        ):
            return False
        self._last_reauthentication_ms = steady_ms
        self.state = SaslState.HANDSHAKE
        return True

    def check_expiry(self, steady_ms: int) -> None:
        """A request of an authenticated client, but a handshake. Raises `SessionExpiredError`."""
        if self.expires_ms is not None and steady_ms >= self.expires_ms:
            self.state = SaslState.ENDED
            raise SessionExpiredError(
                "the session has expired, and the client did not authenticate itself again"
            )

    def end(self) -> None:
        """The client has failed."""
        self.state = SaslState.ENDED
