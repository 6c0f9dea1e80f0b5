"""kafka-configs.sh for quotas of users, client ids and addresses, which is Kafka's AdminClient (KIP-546)."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.support import java as tools
from tests.support.java import ToolResult, ToolServer
from tests.support.topics import unique_name

USERS, CLIENTS, IPS = (("--entity-type", kind) for kind in ("users", "clients", "ips"))
DEFAULT = ("--entity-default",)


class ConfigsTool:
    """`kafka-configs.sh --bootstrap-server` of one broker."""

    def __init__(self, java: ToolServer, broker: Peer) -> None:
        self._java = java
        self._broker = broker
        self._changed: list[tuple[tuple[str, ...], str]] = []

    def __call__(self, *arguments: str) -> ToolResult:
        return self._java.tool(tools.CONFIGS, "--bootstrap-server", self._broker.bootstrap, *arguments)

    def set(self, *entity: str, **quotas: object) -> str:
        self._changed += [(entity, name) for name in quotas]
        values = ",".join(f"{name}={value}" for name, value in quotas.items())
        return self("--alter", "--add-config", values, *entity).ok()

    def remove(self, *entity: str, names: str) -> str:
        return self("--alter", "--delete-config", names, *entity).ok()

    def described(self, *entity: str) -> list[str]:
        result = self("--describe", *entity)
        if "DESCRIBE_USER_SCRAM_CREDENTIALS" not in result.err:
            result.ok()
        return sorted(result.out.strip().splitlines())

    def refused(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 1, result
        return result.out + result.err

    def clean(self) -> None:
        for entity, name in self._changed:
            # The tool refuses to remove what is not there.
            self("--alter", "--delete-config", name, *entity)


@pytest.fixture
def configs(java: ToolServer, broker: Peer) -> Iterator[ConfigsTool]:
    tool = ConfigsTool(java, broker)
    yield tool
    tool.clean()


def named(name: str) -> tuple[str, ...]:
    return ("--entity-name", name)


def test_quotas_are_set_described_and_removed(configs: ConfigsTool) -> None:
    user, client = unique_name(), unique_name()
    of_user = (*USERS, *named(user))
    of_both = (*USERS, *named(user), *CLIENTS, *named(client))
    assert f"Completed updating config for user {user}." in configs.set(
        *of_user, producer_byte_rate=1048576, request_percentage=12.5
    )
    configs.set(*of_both, consumer_byte_rate=2048, controller_mutation_rate=0.5)
    # A user alone is asked for strictly: its quotas with client ids are not of it.
    (described,) = configs.described(*of_user)
    start = f"Quota configs for user-principal '{user}' are "
    assert set(described.removeprefix(start).split(", ")) == {
        "producer_byte_rate=1048576.0",
        "request_percentage=12.5",
    }
    (described,) = configs.described(*of_both)
    start = f"Quota configs for user-principal '{user}', client-id '{client}' are "
    assert set(described.removeprefix(start).split(", ")) == {
        "consumer_byte_rate=2048.0",
        "controller_mutation_rate=0.5",
    }
    configs.remove(*of_user, names="request_percentage")
    assert configs.described(*of_user) == [
        f"Quota configs for user-principal '{user}' are producer_byte_rate=1048576.0"
    ]
    configs.remove(*of_user, names="producer_byte_rate")
    assert configs.described(*of_user) == []
    assert len(configs.described(*of_both)) == 1


def test_defaults_have_quotas_of_their_own(configs: ConfigsTool) -> None:
    name = unique_name()
    configs.set(*CLIENTS, *DEFAULT, producer_byte_rate=100)
    configs.set(*CLIENTS, *named(name), producer_byte_rate=200)
    configs.set(*USERS, *DEFAULT, *CLIENTS, *DEFAULT, producer_byte_rate=300)
    assert configs.described(*CLIENTS, *DEFAULT) == [
        "Quota configs for the default client-id are producer_byte_rate=100.0"
    ]
    assert configs.described(*USERS, *DEFAULT, *CLIENTS, *DEFAULT) == [
        "Quota configs for the default user-principal, the default client-id are producer_byte_rate=300.0"
    ]
    assert configs.described(*CLIENTS) == [
        f"Quota configs for client-id '{name}' are producer_byte_rate=200.0",
        "Quota configs for the default client-id are producer_byte_rate=100.0",
    ]


def test_addresses_have_a_rate_of_connections(configs: ConfigsTool) -> None:
    configs.set(*IPS, *named("192.0.2.7"), connection_creation_rate=7)
    configs.set(*IPS, *DEFAULT, connection_creation_rate=10000)
    assert configs.described(*IPS, *named("192.0.2.7")) == [
        "Quota configs for ip '192.0.2.7' are connection_creation_rate=7.0"
    ]
    assert configs.described(*IPS) == [
        "Quota configs for ip '192.0.2.7' are connection_creation_rate=7.0",
        "Quota configs for the default ip are connection_creation_rate=10000.0",
    ]


def test_names_may_be_anything_but_empty(configs: ConfigsTool) -> None:
    name = "CN=größe, O=a/b %41 <default> *"
    configs.set(*USERS, *named(name), *CLIENTS, *named("<default>"), producer_byte_rate=5)
    (described,) = configs.described(*USERS, *named(name), *CLIENTS, *named("<default>"))
    assert described.startswith(f"Quota configs for user-principal '{name}', client-id '<default>' are")


@pytest.mark.parametrize(
    ("entity", "quota", "problem"),
    [
        ((*USERS, *named("a")), "producer_byte_rate=0", "must be greater than 0"),
        ((*USERS, *named("a")), "request_percentage=-1", "must be greater than 0"),
        ((*CLIENTS, *named("a")), "consumer_byte_rate=1.5", "cannot be a fractional value"),
        ((*IPS, *named("192.0.2.7")), "connection_creation_rate=1.5", "cannot be a fractional value"),
        ((*IPS, *named("192.0.2.7")), "connection_creation_rate=3000000000", "is too large for a"),
    ],
)
def test_value_that_is_not_legal_is_refused(
    configs: ConfigsTool, entity: tuple[str, ...], quota: str, problem: str
) -> None:
    assert problem in configs.refused("--alter", "--add-config", quota, *entity)
    assert configs.described(*entity) == []
