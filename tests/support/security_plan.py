"""The security of a broker in tests, in words that Apache Kafka and Kafscale share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.support.certificates import Certificates
from tests.support.oauth_server import OauthServer

PLAIN: Final = "PLAIN"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
OAUTH: Final = "OAUTHBEARER"
PASSWORD_MECHANISMS: Final = (PLAIN, SCRAM_256, SCRAM_512)
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTH)

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"

MAPPING_RULE: Final = r"RULE:^CN=([a-z0-9-]+),OU=clients,.*$/$1/,DEFAULT"
"""A client certificate's principal is its common name."""


@dataclass(frozen=True, kw_only=True)
class SecurityPlan:
    """Clients that the broker lets in. Kafka's own names of listeners are their protocols.

    `client_auth` is that of the listener SSL: none, requested or required. `users` (name to password) can use
    PLAIN and SCRAM; `super_users` are names.
    """

    certificates: Certificates
    listeners: tuple[str, ...] = (SSL, SASL_SSL, SASL_PLAINTEXT)
    client_auth: str = "required"
    mechanisms: tuple[str, ...] = MECHANISMS
    users: Mapping[str, str] = field(default_factory=dict)
    super_users: tuple[str, ...] = ("admin",)
    has_authorizer: bool = True
    max_reauth_ms: int = 0
    oauth: OauthServer | None = None
    jwks_refresh_ms: int = 3_600_000

    @property
    def password_mechanisms(self) -> tuple[str, ...]:
        """Those of its mechanisms that use `users`."""
        return tuple(name for name in self.mechanisms if name in PASSWORD_MECHANISMS)


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a client comes in: where, by which protocol, and as which user."""

    bootstrap: str
    protocol: str
    ca: str | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    cert: str | None = None
    key: str | None = None
    cert_and_key: str | None = None
    token: str | None = None
    token_url: str | None = None

    @property
    def is_tls(self) -> bool:
        """True if it uses TLS."""
        return self.protocol in (SSL, SASL_SSL)

    def but(self, **changes: str | None) -> "Access":
        """The same with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]
