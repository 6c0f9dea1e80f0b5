"""Makes what authenticates clients of the settings, and applies their quotas: a part of the composition root."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafscale.clocks import Clocks
from kafscale.cluster.view import ClusterView
from kafscale.extras import extra_needed
from kafscale.formats.quota_record import decode_quota_key
from kafscale.metadata import keys
from kafscale.ops import client_metric_families
from kafscale.ops.metrics import Metrics
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.security.client_quotas import ClientQuotas
from kafscale.security.oauth_rules import TokenRules, TokenVerifier
from kafscale.security.sasl import OAUTHBEARER
from kafscale.security.sasl_service import SaslLimits, SaslService
from kafscale.security.scram import Decoys
from kafscale.server.frames import FrameMemory
from kafscale.settings.broker import Settings
from kafscale.settings.listener_list import listener_specs

if TYPE_CHECKING:
    from kafscale.security.jwks import KeySetSource
    from kafscale.security.tls_files import TlsFiles
    from kafscale.server.tls_services import ProtocolTls

# What needs cryptography is loaded where it is used: it takes a tenth of a second and 10 MB, and is not installed
# everywhere.


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS of the broker's listeners, with the certificate of the files at each moment."""

    files: "TlsFiles"
    settings: Settings

    def services(self, protocol: SecurityProtocol, frame_memory: FrameMemory) -> "ProtocolTls":
        """The services that the connections of one protocol share."""
        from kafscale.server.tls_services import ProtocolTls

        return ProtocolTls(self.files, self.settings, protocol, frame_memory)


def open_tls(settings: Settings, metrics: Metrics) -> Tls | None:
    """None if no listener has TLS. Reads the files. Raises `StartupError`."""
    names = [spec.name for spec in listener_specs(settings) if spec.protocol.is_tls]
    if not names:
        return None
    with extra_needed("cluster", f"the listener {names[0]} of KAFSCALE_LISTENERS, which has TLS,"):
        from kafscale.security.tls_files import TlsFiles

    files = TlsFiles(settings, metrics.count_tls_failure)
    metrics.gauge(client_metric_families.TLS_CERTIFICATE_EXPIRY, lambda: files.contexts.expires_at_sec)
    return Tls(files, settings)


def open_token_keys(settings: Settings, clocks: Clocks) -> "KeySetSource | None":
    """The keys of tokens, None without OAUTHBEARER. Nothing is read before `KeySetSource.run`."""
    place = settings.sasl_oauthbearer_jwks_endpoint_url
    if OAUTHBEARER not in settings.sasl_enabled_mechanisms or place is None:
        return None
    with extra_needed("cluster", f"KAFSCALE_SASL_ENABLED_MECHANISMS with {OAUTHBEARER}"):
        from kafscale.security.jwks import KeySetSource

    refresh_sec = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
    return KeySetSource(place, refresh_sec, clocks.steady_clock())


def open_sasl(
    settings: Settings,
    view: ClusterView,
    metrics: Metrics,
    token_keys: "KeySetSource | None",
    clocks: Clocks,
) -> SaslService:
    """SASL of the broker's listeners, with the users that `view` shows."""
    limits = SaslLimits(
        max_reauth_ms=settings.connections_max_reauth_ms,
        failure_delay_ms=settings.connection_failed_authentication_delay_ms,
        timeout_ms=settings.sasl_authentication_timeout_ms,
        max_receive_bytes=settings.sasl_server_max_receive_size,
    )
    # Untrusted clients do not learn the cluster's id, and every broker knows it.
    decoys = Decoys(hashlib.sha256(b"kafscale decoys " + view.cluster_id.encode()).digest())
    return SaslService(
        settings.sasl_enabled_mechanisms,
        lambda name: view.users.get(keys.user(name)),
        decoys,
        metrics,
        limits=limits,
        verifier=None if token_keys is None else _verifier(settings, token_keys, clocks),
        allows_plaintext=settings.allow_plaintext,
    )


def apply_quotas(view: ClusterView, quotas: ClientQuotas) -> None:
    """Let the view's quotas apply to this broker's clients, at each change from now on."""

    def changed(key: str) -> None:
        record = view.quotas.get(key)
        if record is None:
            quotas.set(decode_quota_key(key), {})
        else:
            quotas.set(*record)

    view.quotas.subscribe(changed)


def _verifier(settings: Settings, token_keys: "KeySetSource", clocks: Clocks) -> TokenVerifier:
    from kafscale.security.oauth_tokens import SignatureVerifier

    rules = TokenRules(
        audience=settings.sasl_oauthbearer_expected_audience,
        issuer=settings.sasl_oauthbearer_expected_issuer,
        scope_claim=settings.sasl_oauthbearer_scope_claim_name or "scope",
        sub_claim=settings.sasl_oauthbearer_sub_claim_name or "sub",
        skew_sec=settings.sasl_oauthbearer_clock_skew_seconds,
    )
    return SignatureVerifier(rules, token_keys, clocks.now_ms)
