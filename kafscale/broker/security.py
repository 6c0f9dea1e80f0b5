"""Makes what authenticates clients of the settings, and applies their quotas: a part of the composition root."""

import hashlib
from typing import TYPE_CHECKING

from kafscale import clocks
from kafscale.cluster.view import ClusterView
from kafscale.formats.quota_record import decode_quota_key
from kafscale.metadata import keys
from kafscale.ops.metrics import Metrics
from kafscale.security.client_quotas import ClientQuotas
from kafscale.security.oauth_rules import TokenRules, TokenVerifier
from kafscale.security.sasl import OAUTHBEARER
from kafscale.security.sasl_service import SaslLimits, SaslService
from kafscale.security.scram import Decoys
from kafscale.settings.broker import Settings

if TYPE_CHECKING:
    from kafscale.security.jwks import KeySetSource


def open_token_keys(settings: Settings) -> "KeySetSource | None":
    """The keys of tokens, None without OAUTHBEARER. Nothing is read before `KeySetSource.run`."""
    place = settings.sasl_oauthbearer_jwks_endpoint_url
    if OAUTHBEARER not in settings.sasl_enabled_mechanisms or place is None:
        return None
    # Loaded only here: cryptography takes half a second and 10 MB.
    from kafscale.security.jwks import KeySetSource

    refresh_sec = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
    return KeySetSource(place, refresh_sec, clocks.steady_clock())


def open_sasl(
    settings: Settings, view: ClusterView, metrics: Metrics, token_keys: "KeySetSource | None"
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
        verifier=None if token_keys is None else _verifier(settings, token_keys),
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


def _verifier(settings: Settings, token_keys: "KeySetSource") -> TokenVerifier:
    from kafscale.security.oauth_tokens import SignatureVerifier

    rules = TokenRules(
        audience=settings.sasl_oauthbearer_expected_audience,
        issuer=settings.sasl_oauthbearer_expected_issuer,
        scope_claim=settings.sasl_oauthbearer_scope_claim_name or "scope",
        sub_claim=settings.sasl_oauthbearer_sub_claim_name or "sub",
        skew_sec=settings.sasl_oauthbearer_clock_skew_seconds,
    )
    return SignatureVerifier(rules, token_keys, clocks.now_ms)
