"""Brokers with TLS, SASL, rules and quotas: Apache Kafka and Kafscale behind one surface (`SecurePeer`)."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.compat.tools import java_missing
from tests.support.apache_kafka import CLUSTER_ID, HOST, ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.group_peer import peer_kind
from tests.support.java import CONFIGS, java_command, run_tool
from tests.support.oauth_server import AUDIENCE, ISSUER
from tests.support.ports import free_port
from tests.support.process import clean_environment
from tests.support.security_plan import (
    MAPPING_RULE,
    OAUTH,
    PLAIN,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SSL,
    Access,
    SecurityPlan,
)
from tests.support.waiting import PATIENCE_SEC, wait_until

BROKER_USER = "broker"  # Kafka's own principal between its broker and its controller
_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    PLAIN: f"{_MODULES}.plain.PlainLoginModule",
    OAUTH: f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_LOGIN_MODULE = f"{_MODULES}.scram.ScramLoginModule"


class SecurePeer(Protocol):
    """A broker with a `SecurityPlan`; `host` and `port` are those of its first listener."""

    host: str
    port: int
    plan: SecurityPlan
    ports: dict[str, int]

    @property
    def bootstrap(self) -> str:
        """The address of the first listener."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""

    def start(self) -> None:
        """Start it and wait until it is ready."""

    def stop(self) -> float:
        """Stop it cleanly."""

    def close(self) -> None:
        """Kill it if it still runs."""

    def log_text(self) -> str:
        """Its log so far."""

    def reload_certificates(self, tool_config: Path) -> None:
        """Make it use the files of `plan.certificates` as they are now; `tool_config` is an administrator's."""


class SecureKafka(ApacheKafka):
    """Apache Kafka with a plan. Its broker and controller know each other by certificates."""

    def __init__(self, folder: Path, plan: SecurityPlan, **properties: object) -> None:
        super().__init__(folder, "secure-kafka", offsets_topic_num_partitions=1, **properties)
        self.plan = plan
        self.ports = {listener: free_port() for listener in plan.listeners}
        self.port = self.ports[plan.listeners[0]]
        self._internal_port = free_port()

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        properties = self.folder / "server.properties"
        if not self._formatted:
            properties.write_text(self._server_properties())
            properties.chmod(0o600)
            scrams = [
                f"{mechanism}=[name={user},password={password}]"
                for user, password in self.plan.users.items()
                for mechanism in self.plan.password_mechanisms
                if mechanism != PLAIN
            ]
            added = [part for scram in scrams for part in ("--add-scram", scram)]
            run_tool(
                "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties),
                *added,
            ).ok()  # fmt: skip
            self._formatted = True
        command = java_command("kafka.Kafka", str(properties))
        if self.plan.oauth is not None:
            command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.plan.oauth.jwks_url}")
        self.launch(command, clean_environment())
        wait_until(self._accepts, f"{self.name} accepts connections", timeout_s)

    def reload_certificates(self, tool_config: Path) -> None:
        """Kafka reads a keystore again when its setting is written, for each listener."""
        address = (
            "--bootstrap-server",
            f"{HOST}:{self.ports[SASL_SSL]}",
            "--command-config",
            str(tool_config),
        )
        for listener in self.plan.listeners:
            if listener in (SSL, SASL_SSL):
                location = f"listener.name.{listener.lower()}.ssl.keystore.location"
                run_tool(
                    CONFIGS, *address, "--entity-type", "brokers", "--entity-name", "1", "--alter",
                    "--add-config", f"{location}={self.plan.certificates.server.both}",
                ).ok()  # fmt: skip

    def _server_values(self) -> dict[str, object]:
        plan = self.plan
        listeners = dict(self.ports)
        listeners |= {"INTERNAL": self._internal_port, "CONTROLLER": self._controller_port}
        urls = {name: f"{name}://{HOST}:{port}" for name, port in listeners.items()}
        protocols = {name: name for name in plan.listeners} | {"INTERNAL": SSL, "CONTROLLER": SSL}
        values = super()._server_values() | {
            "listeners": ",".join(urls.values()),
            "advertised.listeners": ",".join(url for name, url in urls.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
            "inter.broker.listener.name": "INTERNAL",
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.client.auth": plan.client_auth,
            "ssl.endpoint.identification.algorithm": "",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": plan.certificates.server.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": plan.certificates.ca,
            "ssl.principal.mapping.rules": MAPPING_RULE.replace("\\", "\\\\"),
            "connections.max.reauth.ms": plan.max_reauth_ms,
            "super.users": ";".join(f"User:{name}" for name in (*plan.super_users, BROKER_USER)),
        }
        if plan.has_authorizer:
            values["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        if plan.oauth is not None:
            values |= {
                # 4.1.0 and 4.1.1 check neither signature nor claims without it (CVE-2026-33557).
                "sasl.oauthbearer.jwt.validator.class": f"{_MODULES}.oauthbearer.BrokerJwtValidator",
                "sasl.oauthbearer.jwks.endpoint.url": plan.oauth.jwks_url,
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": plan.jwks_refresh_ms,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": ISSUER,
            }
        for listener in plan.listeners:
            if listener in (SASL_SSL, SASL_PLAINTEXT):
                values |= self._sasl_values(f"listener.name.{listener.lower()}")
        return values

    def _sasl_values(self, prefix: str) -> dict[str, object]:
        values: dict[str, object] = {f"{prefix}.sasl.enabled.mechanisms": ",".join(self.plan.mechanisms)}
        for mechanism in self.plan.mechanisms:
            module = _LOGIN_MODULES.get(mechanism, _SCRAM_LOGIN_MODULE)
            options = ""
            if mechanism == PLAIN:
                options = "".join(f' user_{name}="{password}"' for name, password in self.plan.users.items())
            one = f"{prefix}.{mechanism.lower()}"
            values[f"{one}.sasl.jaas.config"] = f"{module} required{options};"
            if mechanism == OAUTH:
                values[f"{one}.sasl.server.callback.handler.class"] = (
                    f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                )
        return values


class SecureKafscale(KafscaleBroker):
    """Kafscale with a plan. Its users are made with `kafscale users add` before its first start."""

    def __init__(
        self,
        folder: Path,
        plan: SecurityPlan,
        name: str = "secure-kafscale",
        *,
        adds_users: bool = True,
        **settings: object,
    ) -> None:
        """`adds_users`: false if another broker of the cluster adds them."""
        super().__init__(folder, name, **({"flush_interval_ms": 5} | settings))
        self.plan = plan
        self.ports = {listener: free_port() for listener in plan.listeners}
        self.port = self.ports[plan.listeners[0]]
        self._has_users = not adds_users

    def environment(self) -> dict[str, str]:
        plan = self.plan
        certificates = plan.certificates
        ours: dict[str, object] = {
            "LISTENERS": ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items()),
            "SSL_CERTIFICATE_FILE": certificates.server.cert,
            "SSL_KEY_FILE": certificates.server.key,
            "SSL_CLIENT_CA_FILE": certificates.ca,
            "SSL_CLIENT_AUTH": plan.client_auth,
            "SSL_PRINCIPAL_MAPPING_RULES": MAPPING_RULE,
            "SASL_ENABLED_MECHANISMS": ",".join(plan.mechanisms),
            "SUPER_USERS": ";".join(f"User:{name}" for name in plan.super_users),
            "AUTHORIZER": "acl" if plan.has_authorizer else "none",
            "ALLOW_PLAINTEXT": "true",  # PLAIN on a listener without TLS, too
            "CONNECTIONS_MAX_REAUTH_MS": plan.max_reauth_ms,
        }
        if plan.oauth is not None:
            ours |= {
                "SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": plan.oauth.jwks_url,
                "SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS": plan.jwks_refresh_ms,
                "SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
                "SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
            }
        environment = super().environment() | {f"KAFSCALE_{name}": str(one) for name, one in ours.items()}
        del environment["KAFSCALE_BROKER_ADDR"]
        return environment

    def launch_only(self) -> None:
        if not self._has_users:
            for name, password in self.plan.users.items():
                self.add_user(name, password)
            self._has_users = True
        super().launch_only()

    def add_user(self, name: str, password: str) -> None:
        """`kafscale users add`, with the password on its standard input."""
        done = subprocess.run(
            [str(Path(sys.executable).parent / "kafscale"), "users", "add", name, "--password-stdin"],
            input=password,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert password not in done.stdout + done.stderr

    def reload_certificates(self, tool_config: Path) -> None:
        """Nothing to do: it reads files again when they change."""


@contextlib.contextmanager
def secure_peer(folder: Path, plan: SecurityPlan, **settings: Any) -> Iterator[SecurePeer]:
    """A running broker with this plan, Kafscale or, with KAFSCALE_TEST_PEER=kafka, Apache Kafka.

    `settings` are those that have one name in both. At the end it must stop cleanly if it still runs.
    """
    peer: SecureKafka | SecureKafscale
    if peer_kind() == "kafka":
        reason = java_missing()
        if reason:
            pytest.skip(reason)
        peer = SecureKafka(folder, plan, **settings)
    else:
        peer = SecureKafscale(folder, plan, **settings)
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()


def access(peer: SecurePeer, protocol: str, user: str, mechanism: str | None = None) -> Access:
    """How this user comes in by a listener, with everything right."""
    plan = peer.plan
    made = Access(bootstrap=f"{HOST}:{peer.ports[protocol]}", protocol=protocol, user=user)
    if protocol in (SSL, SASL_SSL):
        made = made.but(ca=str(plan.certificates.ca))
    if protocol == SSL and user:
        identity = plan.certificates.client(user)
        made = made.but(cert=str(identity.cert), key=str(identity.key), cert_and_key=str(identity.both))
    if protocol in (SASL_SSL, SASL_PLAINTEXT):
        mechanism = mechanism or SCRAM_256
        made = made.but(mechanism=mechanism)
        if mechanism == OAUTH:
            assert plan.oauth is not None
            made = made.but(token=plan.oauth.token(user), token_url=plan.oauth.token_url)
        else:
            made = made.but(password=plan.users.get(user, ""))
    return made
