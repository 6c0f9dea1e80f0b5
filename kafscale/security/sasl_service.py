"""SASL of one broker: which mechanisms a listener has, what they check against, and what is logged and counted."""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafscale.formats.user_record import MECHANISMS_BY_NAME, ScramCredential, ScramMechanism, UserRecord
from kafscale.ops.line_limit import RepeatedLines
from kafscale.ops.metrics import Metrics
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.protocol.quoting import quoted
from kafscale.security.oauth_exchange import OAuthExchange
from kafscale.security.oauth_rules import TokenVerifier
from kafscale.security.password_checks import PasswordChecks
from kafscale.security.plain_exchange import PlainExchange
from kafscale.security.principal import Principal
from kafscale.security.sasl import OAUTHBEARER, PLAIN, AuthenticationError, Exchange
from kafscale.security.scram import Decoys
from kafscale.security.scram_exchange import ScramExchange

_audit = logging.getLogger("kafscale.audit")

_NONCE_BYTES: Final = 24

FindUser = Callable[[str], UserRecord | None]
"""The record of a user by name, None for an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLimits:
    """Times and sizes: see the settings of the same names."""

    max_reauth_ms: int = 0
    failure_delay_ms: int = 100
    timeout_ms: int = 30_000
    max_receive_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class SaslClient:
    """A connection, for logs and metrics."""

    listener: ListenerName
    protocol: SecurityProtocol
    host: str


class SaslService:
    """Begins exchanges, and reports how they ended. Belongs to the event loop's thread."""

    def __init__(
        self,
        mechanisms: tuple[str, ...],
        find_user: FindUser,
        decoys: Decoys,
        metrics: Metrics,
        *,
        limits: SaslLimits,
        verifier: TokenVerifier | None = None,
        allows_plaintext: bool = False,
    ) -> None:
        """`verifier`: of OAUTHBEARER, which there is not without one. `allows_plaintext`: PLAIN without TLS."""
        self.limits = limits
        self._mechanisms = tuple(name for name in mechanisms if name != OAUTHBEARER or verifier is not None)
        self._find_user = find_user
        self._decoys = decoys
        self._metrics = metrics
        self._verifier = verifier
        self.allows_plaintext = allows_plaintext
        self._checks = PasswordChecks()
        self._repeated_lines = RepeatedLines(time.monotonic)

    @property
    def logins_waiting(self) -> int:
        """How many logins wait for a thread. For any thread."""
        return self._checks.waiting_count

    def mechanisms(self, protocol: SecurityProtocol) -> tuple[str, ...]:
        """The mechanisms of a listener with the protocol. PLAIN shows the password to anyone who reads the bytes."""
        if protocol.is_tls or self.allows_plaintext:
            return self._mechanisms
        return tuple(name for name in self._mechanisms if name != PLAIN)

    def exchange(self, mechanism: str, client: SaslClient) -> Exchange:
        """Begin an exchange by one of `mechanisms`."""
        if mechanism == PLAIN:
            return PlainExchange(self._credentials, self._decoys, self._checks, client.host)
        if mechanism == OAUTHBEARER and self._verifier is not None:
            return OAuthExchange(self._verifier)
        scram = MECHANISMS_BY_NAME[mechanism]
        return ScramExchange(scram, partial(self._credential, scram), self._decoys, _nonce())

    def _credentials(self, name: str) -> Mapping[ScramMechanism, ScramCredential]:
        record = self._find_user(name)
        return {} if record is None else record.scram

    def _credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return self._credentials(name).get(mechanism)

    # --- the audit log

    def succeeded(self, client: SaslClient, mechanism: str, principal: Principal, *, is_again: bool) -> None:
        """A client has authenticated itself."""
        metrics = self._metrics.authentications_at(client.listener)
        (metrics.successful_again if is_again else metrics.successful)[mechanism] += 1
        extra = _fields(client, mechanism) | {"principal": quoted(str(principal))}
        _audit.info("re-authentication succeeded" if is_again else "authentication succeeded", extra=extra)

    def failed(self, client: SaslClient, mechanism: str, reason: str, *, is_again: bool) -> None:
        """A client has failed: a line a minute for each client and reason. `reason` has no secret in it."""
        metrics = self._metrics.authentications_at(client.listener)
        (metrics.failed_again if is_again else metrics.failed)[mechanism] += 1
        left_out = self._repeated_lines.admit((reason, client.host))
        if left_out is not None:
            extra: dict[str, object] = {**_fields(client, mechanism), "reason": quoted(reason)}
            if left_out:
                extra["left_out"] = left_out
            _audit.warning("re-authentication failed" if is_again else "authentication failed", extra=extra)

    def expired(self, client: SaslClient) -> None:
        """A connection is closed because its session has expired."""
        self._metrics.authentications_at(client.listener).expired += 1

    def close(self) -> None:
        """End the threads."""
        self._checks.close()


def _fields(client: SaslClient, mechanism: str) -> dict[str, str]:
    return {"client": client.host, "listener": client.listener, "mechanism": mechanism or "none"}


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def failure_text(problem: AuthenticationError, mechanism: str, *, is_again: bool) -> str:
    """The text for the client, as Kafka's: it says nothing of what was wrong, unless the mechanism has its own."""
    attempt = "re-authentication" if is_again else "authentication"
    return (
        problem.answer
        or f"Authentication failed during {attempt} due to invalid credentials with SASL mechanism {mechanism}"
    )
