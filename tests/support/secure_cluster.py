"""Brokers with TLS, SCRAM, client certificates, access rules, and quotas that are never reached."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]
from kafka.protocol.admin import AlterClientQuotasRequest, AlterClientQuotasResponse

from tests.support import wire
from tests.support.access_rules import GROUP, TOPIC, add_rules, rule
from tests.support.broker import KafscaleBroker
from tests.support.certificates import Certificates
from tests.support.client_security import java_config, librdkafka_config, ssl_context
from tests.support.cluster import ClientSettings, Cluster
from tests.support.metrics_page import scrape
from tests.support.secure_peer import SecureKafscale, access
from tests.support.security_plan import SASL_SSL, SCRAM_512, SSL, Access, SecurityPlan

ADMIN: Final = "admin"
"""The super user; raw connections are its, by its certificate."""
WRITER: Final = "writer"
READER: Final = "reader"
SESSION_MS: Final = 10_000
"""Clients authenticate themselves again this often."""
_USERS: Final = {name: f"{name}-secret" for name in (ADMIN, WRITER, READER)}
_PLENTY: Final = 1e9
_PLENTY_OF_CONNECTIONS: Final = 1e6


RE_AUTHENTICATES: dict[str, object] = {"socket_timeout_ms": 15_000}
"""librdkafka (2.16) authenticates again behind the requests that it has in flight, and takes a handshake that could
not be sent in time for a refusal. So with less than an outage lasts here it would give records up."""


class ClusterSecurity:
    """The plan of a secure cluster's brokers. `make_broker` is for `Cluster`, which calls it for each of them."""

    def __init__(self, folder: Path) -> None:
        self._plan = SecurityPlan(
            certificates=Certificates(folder), users=_USERS, super_users=(ADMIN,), listeners=(SSL, SASL_SSL),
            mechanisms=(SCRAM_512,), max_reauth_ms=SESSION_MS,
        )  # fmt: skip
        self._brokers: list[SecureKafscale] = []

    def make_broker(self, folder: Path, name: str, **settings: object) -> KafscaleBroker:
        """One more broker. The first one's start adds the users."""
        broker = SecureKafscale(folder, self._plan, name, adds_users=not self._brokers, **settings)
        self._brokers.append(broker)
        broker.tls = ssl_context(self.certificate_way(ADMIN))
        return broker

    def way_in(self, user: str) -> Access:
        """The user's access to all brokers, by password."""
        ways = [access(broker, SASL_SSL, user, SCRAM_512) for broker in self._brokers]
        return ways[0].but(bootstrap=",".join(way.bootstrap for way in ways))

    def certificate_way(self, user: str) -> Access:
        """The user's access to the first broker, by certificate; the others take it, too."""
        return access(self._brokers[0], SSL, user)

    def clients(self) -> ClientSettings:
        """For the clients of a `Cluster` of these brokers."""
        return ClientSettings(
            writer={**librdkafka_config(self.way_in(WRITER)), **RE_AUTHENTICATES},
            reader=librdkafka_config(self.way_in(READER)),
            java_writer=java_config(self.way_in(WRITER)),
        )

    def admin(self) -> AdminClient:
        """librdkafka's administrator, as the super user."""
        return AdminClient(librdkafka_config(self.way_in(ADMIN)))

    def allow(self, topic: str, groups: Sequence[str]) -> None:
        """Let the writer write to the topic, and the reader read it as a member of the groups; set all quotas."""
        add_rules(
            self.admin(),
            rule(TOPIC, topic, AclOperation.WRITE, f"User:{WRITER}"),
            rule(TOPIC, topic, AclOperation.READ, f"User:{READER}"),
            *(rule(GROUP, group, AclOperation.READ, f"User:{READER}") for group in groups),
        )
        self._set_quotas()

    def _set_quotas(self) -> None:
        entry = AlterClientQuotasRequest.EntryData
        of_users = (
            "producer_byte_rate",
            "consumer_byte_rate",
            "request_percentage",
            "controller_mutation_rate",
        )

        def default(kind: str, *keys: str) -> object:
            plenty = _PLENTY_OF_CONNECTIONS if kind == "ip" else _PLENTY
            return entry(
                entity=[entry.EntityData(entity_type=kind, entity_name=None)],
                ops=[entry.OpData(key=key, value=plenty, remove=False) for key in keys],
            )

        request = AlterClientQuotasRequest(
            entries=[default("user", *of_users), default("ip", "connection_creation_rate")],
            validate_only=False,
        )
        with wire.connect(self._brokers[0]) as connection:
            reply = connection.call(request, AlterClientQuotasResponse, 1)
        assert [one.error_code for one in reply.entries] == [0, 0], reply

    def check(self, cluster: Cluster) -> None:
        """No client was kept out, refused or throttled, and quotas were measured. The cluster is up."""
        for broker in cluster.brokers.values():
            log = broker.log_text()
            assert "authentication succeeded" in log, broker.name
            for refused in ("authentication failed", "access denied"):
                lines = [line for line in log.splitlines() if refused in line]
                assert not lines, f"{broker.name}: {lines[:5]}"
            assert not any(secret in log for secret in _USERS.values()), f"{broker.name} logs a password"
            throttled = scrape(broker).by_label("kafscale_throttle_seconds_count", "quota")
            assert not any(throttled.values()), f"{broker.name}: {throttled}"
