"""A legal text for each setting of SASL, and its value."""

from typing import Final

SASL_LEGAL: Final[dict[str, tuple[str, object]]] = {
    "KAFSCALE_SASL_ENABLED_MECHANISMS": ("plain, SCRAM-SHA-512,PLAIN", ("PLAIN", "SCRAM-SHA-512")),
    "KAFSCALE_CONNECTIONS_MAX_REAUTH_MS": ("3600000", 3_600_000),
    "KAFSCALE_CONNECTION_FAILED_AUTHENTICATION_DELAY_MS": ("0", 0),
    "KAFSCALE_SASL_AUTHENTICATION_TIMEOUT_MS": ("5000", 5_000),
    "KAFSCALE_SASL_SERVER_MAX_RECEIVE_SIZE": ("16KiB", 16 * 1024),
    "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": (
        "https://issuer.example:8443/keys?set=a",
        "https://issuer.example:8443/keys?set=a",
    ),
    "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": ("kafka, kafscale", ("kafka", "kafscale")),
    "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ("https://issuer.example", "https://issuer.example"),
    "KAFSCALE_SASL_OAUTHBEARER_SCOPE_CLAIM_NAME": ("scp", "scp"),
    "KAFSCALE_SASL_OAUTHBEARER_SUB_CLAIM_NAME": ("preferred_username", "preferred_username"),
    "KAFSCALE_SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS": ("0", 0),
    "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS": ("60000", 60_000),
}
