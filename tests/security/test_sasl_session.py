"""The states of a connection of a SASL listener, walked through as a whole and by random walks."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.protocol.api_keys import ApiKey
from kafscale.security.sasl import Authenticated, AuthenticationError
from kafscale.security.sasl_session import (
    MAX_API_VERSIONS,
    IllegalStateError,
    SaslSession,
    SaslState,
    SessionExpiredError,
)

ALICE, BOB = Authenticated(b"", "alice"), Authenticated(b"", "bob")
NOW_MS, STEADY_MS = 1_700_000_000_000, 5_000
LEGAL_BEFORE = {
    SaslState.HANDSHAKE: {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE},
    SaslState.TOKENS: {ApiKey.SASL_AUTHENTICATE},
    SaslState.RAW_TOKENS: set(),
    SaslState.ENDED: set(),
}


def session_in(state: SaslState, max_reauth_ms: int = 0) -> SaslSession:
    session = SaslSession(max_reauth_ms)
    if state is SaslState.HANDSHAKE:
        return session
    if state is SaslState.ENDED:
        session.end()
        return session
    session.handshake("PLAIN", wraps_tokens=state is not SaslState.RAW_TOKENS)
    if state is SaslState.AUTHENTICATED:
        session.authenticated(ALICE, now_ms=NOW_MS, steady_ms=STEADY_MS)
    return session


@pytest.mark.parametrize(("state", "key"), list(product(LEGAL_BEFORE, [*ApiKey, -1, 32_767])))
def test_each_state_takes_its_requests_only(state: SaslState, key: int) -> None:
    session = session_in(state)
    if key in LEGAL_BEFORE[state]:
        session.request(key)
        assert session.state is state
    else:
        known = f"API key {int(key)} " if key in list(ApiKey) else "an unknown API"
        with pytest.raises(IllegalStateError, match=known):
            session.request(key)
        assert session.state is SaslState.ENDED


def test_versions_are_asked_for_a_few_times_only() -> None:
    session = SaslSession(0)
    for _ in range(MAX_API_VERSIONS):
        session.request(ApiKey.API_VERSIONS)
    with pytest.raises(IllegalStateError):
        session.request(ApiKey.API_VERSIONS)


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_life_ms", "lifetime_ms"),
    [(0, None, 0), (1000, None, 1000), (0, 700, 700), (1000, 700, 700), (500, 700, 500), (1000, -5, 0)],
)
def test_lifetime_is_the_smaller_of_setting_and_token(
    max_reauth_ms: int, token_life_ms: int | None, lifetime_ms: int
) -> None:
    session = session_in(SaslState.TOKENS, max_reauth_ms)
    expires_ms = None if token_life_ms is None else NOW_MS + token_life_ms
    start = session.authenticated(Authenticated(b"", "alice", expires_ms), now_ms=NOW_MS, steady_ms=STEADY_MS)
    assert (start.lifetime_ms, start.is_again, str(start.principal)) == (lifetime_ms, False, "User:alice")
    has_limit = max_reauth_ms > 0 or token_life_ms is not None
    assert session.expires_ms == (STEADY_MS + lifetime_ms if has_limit else None)
    if has_limit:
        with pytest.raises(SessionExpiredError):
            session.check_expiry(STEADY_MS + lifetime_ms)
        assert session.state is SaslState.ENDED
    else:
        session.check_expiry(10**15)


def test_session_without_a_limit_is_not_begun_again() -> None:
    session = session_in(SaslState.AUTHENTICATED)
    assert not session.begin_again(STEADY_MS)
    assert session.state is SaslState.AUTHENTICATED


def test_session_is_begun_again_once_a_second() -> None:
    session = session_in(SaslState.AUTHENTICATED, 60_000)
    for at_ms in (STEADY_MS, STEADY_MS + 1_000):
        assert session.begin_again(at_ms)
        session.handshake("PLAIN", wraps_tokens=True)
        session.token()
        assert session.authenticated(ALICE, now_ms=NOW_MS, steady_ms=at_ms).is_again
        assert session.expires_ms == at_ms + 60_000
        assert not session.begin_again(at_ms + 999)


def test_versions_are_not_asked_for_again() -> None:
    session = session_in(SaslState.AUTHENTICATED, 60_000)
    session.begin_again(STEADY_MS)
    with pytest.raises(IllegalStateError):
        session.request(ApiKey.API_VERSIONS)


def test_another_mechanism_is_refused_with_its_first_token() -> None:
    session = session_in(SaslState.AUTHENTICATED, 60_000)
    session.begin_again(STEADY_MS)
    session.handshake("SCRAM-SHA-256", wraps_tokens=True)
    with pytest.raises(AuthenticationError, match="re-authentication of mechanism 'PLAIN'"):
        session.token()


def test_another_user_is_refused() -> None:
    session = session_in(SaslState.AUTHENTICATED, 60_000)
    session.begin_again(STEADY_MS)
    session.handshake("PLAIN", wraps_tokens=True)
    with pytest.raises(AuthenticationError, match="another user"):
        session.authenticated(BOB, now_ms=NOW_MS, steady_ms=STEADY_MS)


@given(
    st.lists(
        st.sampled_from(
            [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA]
        )
    )
)
def test_no_walk_without_a_credential_gets_in(walk: list[ApiKey]) -> None:
    session = SaslSession(0)
    for key in walk:
        try:
            session.request(key)
        except IllegalStateError:
            break
        if key is ApiKey.SASL_HANDSHAKE:
            session.handshake("PLAIN", wraps_tokens=True)
    assert session.state is not SaslState.AUTHENTICATED
    assert session.principal is None
