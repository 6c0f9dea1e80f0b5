"""Brokers with security for the tests of this folder. KAFSCALE_TEST_PEER=kafka runs them on Apache Kafka."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat import tools
from tests.compat.security.clients import Client
from tests.compat.security.clients.aiokafka_client import Aiokafka
from tests.compat.security.clients.java_client import Java
from tests.compat.security.clients.kafka_python import KafkaPython
from tests.compat.security.clients.librdkafka import Librdkafka
from tests.compat.security.clients.programs import FranzGo, KafkaJs, Kcat
from tests.support.access_rules import allow_prefix
from tests.support.certificates import Certificates
from tests.support.client_security import java_options, librdkafka_config, write_tool_config
from tests.support.java import TOOL_SERVER, ToolServer, java_command
from tests.support.oauth_server import OauthServer
from tests.support.secure_peer import SecurePeer, access, secure_peer
from tests.support.security_plan import OAUTH, SASL_SSL, SCRAM_512, SSL, SecurityPlan

USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
OPEN = "open-"
"""alice may do everything with topics and groups whose names begin so, on `secured`."""
MAX_REAUTH_MS = 4_000  # librdkafka begins again when a tenth is left: so long may a process stand still
BAD_CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "expired": {"iat": 1_600_000_000, "exp": 1_600_000_600},
    "for others": {"aud": "others"},
    "of others": {"iss": "https://others.invalid"},
    "undated": {"iat": None},
}
"""The faults of a token that is signed as it should be."""
CLIENTS = ("java", "librdkafka", "kafka-python", "aiokafka", "franz-go", "kafkajs", "kcat")
_MISSING = {
    "java": tools.java_missing,
    "franz-go": tools.franz_missing,
    "kafkajs": tools.kafka_js_missing,
    "kcat": tools.kcat_missing,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out mechanisms that a client does not have: there is nothing to run, and nothing to miss."""
    beyond = [item for item in items if isinstance(item, pytest.Function) and _is_beyond(item)]
    if beyond:
        items[:] = [item for item in items if item not in beyond]
        config.hook.pytest_deselected(items=beyond)


def _is_beyond(item: pytest.Function) -> bool:
    """True for kcat, as Debian builds it, with a mechanism that it lacks; tests of tokens are OAUTHBEARER's."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    # The client first: this is asked of each of ten thousand tests, and a path is slow to compare.
    if params.get("client") != "kcat" or Path(__file__).parent not in item.path.parents:
        return False
    mechanism = OAUTH if "_token_" in item.name else params.get("mechanism")
    return mechanism not in (None, *Kcat.mechanisms)


@pytest.fixture(scope="package")
def oauth() -> Iterator[OauthServer]:
    """Gives out tokens, and publishes its keys."""
    server = OauthServer()
    yield server
    server.close()


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA, a server's certificate, clients' certificates."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="package")
def secured(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, oauth: OauthServer
) -> Iterator[SecurePeer]:
    """A broker with every mechanism, an authorizer, and a listener SSL that requires certificates."""
    plan = SecurityPlan(certificates=certificates, users=USERS, oauth=oauth)
    with secure_peer(tmp_path_factory.mktemp("secured"), plan, group_initial_rebalance_delay_ms=0) as peer:
        allow_prefix(AdminClient(librdkafka_config(access(peer, SASL_SSL, "admin"))), OPEN)
        yield peer


@pytest.fixture(scope="package")
def lenient(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, oauth: OauthServer
) -> Iterator[SecurePeer]:
    """A broker without an authorizer, with a listener SSL that asks for no certificate.

    Its SASL_SSL has two mechanisms, and ends sessions soon.
    """
    plan = SecurityPlan(
        certificates=certificates, users=USERS, oauth=oauth, listeners=(SSL, SASL_SSL), client_auth="none",
        mechanisms=(SCRAM_512, OAUTH), has_authorizer=False, max_reauth_ms=MAX_REAUTH_MS,
    )  # fmt: skip
    with secure_peer(tmp_path_factory.mktemp("lenient"), plan, group_initial_rebalance_delay_ms=0) as peer:
        yield peer


@pytest.fixture(scope="package")
def admin(secured: SecurePeer) -> AdminClient:
    """librdkafka's administrator, as the super user of `secured`."""
    return AdminClient(librdkafka_config(access(secured, SASL_SSL, "admin")))


@pytest.fixture(scope="package")
def admin_config(secured: SecurePeer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`--command-config` of the super user on `secured`."""
    path = tmp_path_factory.mktemp("tools") / "admin.properties"
    return write_tool_config(access(secured, SASL_SSL, "admin"), path)


@pytest.fixture(scope="package")
def secure_java(oauth: OauthServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """Kafka's Java tools and clients in one JVM, which may get tokens."""
    _skip_without("java")
    command = java_command(str(TOOL_SERVER))
    # Kafka compares addresses whole, and commas separate them.
    command[1:1] = java_options(
        oauth.token_url, *(oauth.token_url_with(**claims) for claims in BAD_CLAIMS.values())
    )
    server = ToolServer(command, tmp_path_factory.mktemp("java") / "tool-server.err")
    yield server
    server.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    """The client of the test's parameter `client`, which is one of `CLIENTS`."""
    name: str = request.param
    _skip_without(name)
    if name == "java":
        return Java(request.getfixturevalue("secure_java"), tmp_path)
    others: tuple[Client, ...] = (Librdkafka(), KafkaPython(), Aiokafka(), FranzGo(), KafkaJs(), Kcat())
    return next(one for one in others if one.name == name)


def _skip_without(name: str) -> None:
    reason = _MISSING[name]() if name in _MISSING else None
    if reason:
        pytest.skip(reason)
