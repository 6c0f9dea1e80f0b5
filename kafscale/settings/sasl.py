"""The settings of SASL: how clients of SASL listeners show who they are."""

from dataclasses import dataclass

from kafscale.settings.kinds import integer, key_set, sasl_mechanisms, size, text, texts
from kafscale.settings.rows import INT32_MAX, INT64_MAX, KIB, MIB, derived, setting


@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """Mechanisms, limits before authentication, and the rules for tokens; a part of `Settings`."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "KAFSCALE_SASL_ENABLED_MECHANISMS",
        sasl_mechanisms(),
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "The SASL mechanisms of listeners with SASL. PLAIN sends the password itself: SASL_PLAINTEXT listeners have "
        "it only with KAFSCALE_ALLOW_PLAINTEXT. OAUTHBEARER needs KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.",
    )
    connections_max_reauth_ms: int = setting(
        "KAFSCALE_CONNECTIONS_MAX_REAUTH_MS",
        integer(0, INT64_MAX),
        "0",
        "After so long a client must authenticate itself again on its connection, or it is closed with its next "
        "request (KIP-368); 0 for no limit but a token's own.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        "KAFSCALE_CONNECTION_FAILED_AUTHENTICATION_DELAY_MS",
        integer(0, 10_000),
        "100",
        "How long the answer to a failed authentication is delayed, and the end of its connection.",
    )
    sasl_authentication_timeout_ms: int = setting(
        "KAFSCALE_SASL_AUTHENTICATION_TIMEOUT_MS",
        integer(100, 600_000),
        "30000",
        "A connection that is not authenticated after so long is closed.",
    )
    sasl_server_max_receive_size: int = setting(
        "KAFSCALE_SASL_SERVER_MAX_RECEIVE_SIZE",
        size(KIB, MIB),
        "64KiB",
        "The largest request before authentication; a connection that sends a larger one is closed.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = derived(
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL",
        key_set(),
        "none",
        "The keys (JWKS) that tokens of OAUTHBEARER are signed with: a URL or a file.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE",
        texts(),
        "",
        "A token must name one of these as its audience; empty: it must name none, as in Kafka.",
    )
    sasl_oauthbearer_expected_issuer: str | None = derived(
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER",
        text(),
        "any",
        "A token must have this issuer.",
    )
    sasl_oauthbearer_scope_claim_name: str | None = setting(
        "KAFSCALE_SASL_OAUTHBEARER_SCOPE_CLAIM_NAME",
        text(249),
        "scope",
        "The claim of a token with its scopes: a text or a list of texts, which may be missing.",
    )
    sasl_oauthbearer_sub_claim_name: str | None = setting(
        "KAFSCALE_SASL_OAUTHBEARER_SUB_CLAIM_NAME",
        text(249),
        "sub",
        "The claim of a token with the name of its user.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "KAFSCALE_SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS",
        integer(0, 3_600),
        "30",
        "How much the clock of a token's issuer may differ.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS",
        integer(1_000, INT32_MAX),
        "3600000",
        "How often the keys are read again. A token with an unknown key causes that sooner, at most every "
        "10 seconds.",
    )
