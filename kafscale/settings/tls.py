"""The settings of TLS: certificate, key, clients' certificates."""

from dataclasses import dataclass
from pathlib import Path

from kafscale.settings.kinds import choice, file, integer, text
from kafscale.settings.listener_kinds import ClientAuth, TlsVersion, tls_versions
from kafscale.settings.principal_mapping import MappingRule, mapping_rules
from kafscale.settings.rows import derived, secret, setting


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """Of all listeners with SSL or SASL_SSL; a part of `Settings`."""

    ssl_certificate_file: Path | None = derived(
        "KAFSCALE_SSL_CERTIFICATE_FILE",
        file(),
        "none",
        "PEM file with the broker's certificate, and those that lead to its CA, for listeners with SSL or SASL_SSL. "
        "This and the other files are read again when they change.",
    )
    ssl_key_file: Path | None = derived(
        "KAFSCALE_SSL_KEY_FILE",
        file(),
        "none",
        "PEM file with the certificate's private key.",
    )
    ssl_key_password: str | None = secret(
        "KAFSCALE_SSL_KEY_PASSWORD",
        text(),
        "none",
        "The password of the private key, if it is encrypted.",
    )
    ssl_client_ca_file: Path | None = derived(
        "KAFSCALE_SSL_CLIENT_CA_FILE",
        file(),
        "none",
        "PEM file with the CAs whose client certificates are accepted.",
    )
    ssl_client_auth: ClientAuth = setting(
        "KAFSCALE_SSL_CLIENT_AUTH",
        choice(ClientAuth),
        "none",
        "Whether a client of a listener with SSL shows a certificate: `required`, `requested` (one without is "
        "`User:ANONYMOUS`) or `none`. Clients of SASL_SSL are never asked for one (KIP-684).",
    )
    ssl_enabled_protocols: tuple[TlsVersion, ...] = setting(
        "KAFSCALE_SSL_ENABLED_PROTOCOLS",
        tls_versions(),
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that clients may use.",
    )
    ssl_principal_mapping_rules: tuple[MappingRule, ...] = setting(
        "KAFSCALE_SSL_PRINCIPAL_MAPPING_RULES",
        mapping_rules(),
        "DEFAULT",
        "How the name in a client's certificate becomes that of its principal, as Kafka's "
        "`ssl.principal.mapping.rules`: `RULE:pattern/replacement/[LU]` or `DEFAULT`, several with commas between; "
        "the first that matches counts.",
    )
    ssl_handshake_timeout_ms: int = setting(
        "KAFSCALE_SSL_HANDSHAKE_TIMEOUT_MS",
        integer(100, 600_000),
        "10000",
        "How long a client may take for the TLS handshake before its connection is closed.",
    )
