"""Users' passwords (SCRAM) by kafka-configs.sh and by librdkafka's administrator."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.compat.security.clients.librdkafka import Librdkafka
from tests.support.client_security import librdkafka_config, write_tool_config
from tests.support.java import CONFIGS, ToolResult, ToolServer
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import SASL_SSL, SCRAM_256, SCRAM_512
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC


class Users:
    """kafka-configs.sh --entity-type users."""

    def __init__(self, server: ToolServer, peer: SecurePeer, config: Path) -> None:
        self._server = server
        self._common = (
            "--bootstrap-server", f"127.0.0.1:{peer.ports[SASL_SSL]}", "--command-config", str(config),
            "--entity-type", "users",
        )  # fmt: skip

    def __call__(self, *arguments: str) -> ToolResult:
        return self._server.tool(CONFIGS, *self._common, *arguments)

    def set_password(self, name: str, mechanism: str, password: str, iterations: int = 4096) -> str:
        """`--alter --add-config`."""
        value = f"{mechanism}=[iterations={iterations},password={password}]"
        return self("--alter", "--entity-name", name, "--add-config", value).ok()

    def describe(self, name: str) -> str:
        """`--describe`."""
        return self("--describe", "--entity-name", name).ok()


@pytest.fixture
def users(secured: SecurePeer, secure_java: ToolServer, admin_config: Path) -> Users:
    """The tool, as the super user."""
    return Users(secure_java, secured, admin_config)


def described(admin: AdminClient, name: str) -> Any:
    """A user's credentials by librdkafka's administrator. Raises `KafkaException`."""
    futures = admin.describe_user_scram_credentials([name])
    assert isinstance(futures, dict)
    return futures[name].result(PATIENCE_SEC)


def refusal(peer: SecurePeer, name: str, mechanism: str, password: str) -> str | None:
    """None if this password lets the user in."""
    way_in = access(peer, SASL_SSL, "alice", mechanism).but(user=name, password=password)
    return Librdkafka().refusal(way_in)


def test_user_is_added_described_changed_deleted(secured: SecurePeer, users: Users) -> None:
    name = unique_name("user")
    assert f"Completed updating config for user {name}." in users.set_password(name, SCRAM_256, "first")
    assert users.describe(name).strip() == (
        f"SCRAM credential configs for user-principal '{name}' are SCRAM-SHA-256=iterations=4096"
    )
    assert refusal(secured, name, SCRAM_256, "first") is None
    assert refusal(secured, name, SCRAM_512, "first") == "_AUTHENTICATION"
    users.set_password(name, SCRAM_256, "second", iterations=8192)
    assert "SCRAM-SHA-256=iterations=8192" in users.describe(name)
    assert refusal(secured, name, SCRAM_256, "first") == "_AUTHENTICATION"
    assert refusal(secured, name, SCRAM_256, "second") is None
    users("--alter", "--entity-name", name, "--delete-config", SCRAM_256).ok()
    assert users.describe(name).strip() == ""
    assert refusal(secured, name, SCRAM_256, "second") == "_AUTHENTICATION"


def test_each_mechanism_has_its_own_password(secured: SecurePeer, users: Users) -> None:
    name = unique_name("user")
    users.set_password(name, SCRAM_256, "one")
    users.set_password(name, SCRAM_512, "two")
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096" in users.describe(name)
    assert refusal(secured, name, SCRAM_256, "one") is None
    assert refusal(secured, name, SCRAM_512, "two") is None
    assert refusal(secured, name, SCRAM_512, "one") == "_AUTHENTICATION"


def test_all_users_are_described(users: Users) -> None:
    described = users("--describe").ok()
    both = "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096"
    assert f"SCRAM credential configs for user-principal 'alice' are {both}" in described
    assert "secret" not in described


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("SCRAM-SHA-256=[iterations=4095,password=x]", "is less than the minimum 4096"),
        ("SCRAM-SHA-256=[iterations=16385,password=x]", "Too many iterations"),
    ],
)
def test_bad_iterations_are_refused(users: Users, value: str, problem: str) -> None:
    done = users("--alter", "--entity-name", "alice", "--add-config", value)
    assert done.exit_code != 0
    assert problem in done.out + done.err, done


def test_deleting_an_unknown_user_is_refused(users: Users) -> None:
    done = users("--alter", "--entity-name", unique_name("user"), "--delete-config", SCRAM_256)
    assert done.exit_code != 0
    assert "ResourceNotFoundException" in done.out + done.err


def test_tool_without_rights_is_refused(secured: SecurePeer, secure_java: ToolServer, tmp_path: Path) -> None:
    config = write_tool_config(access(secured, SASL_SSL, "bob"), tmp_path / "bob.properties")
    users = Users(secure_java, secured, config)
    for arguments in (
        ("--describe", "--entity-name", "alice"),
        ("--alter", "--entity-name", "bob", "--add-config", "SCRAM-SHA-256=[password=other]"),
    ):
        done = users(*arguments)
        assert done.exit_code != 0
        assert "ClusterAuthorizationException" in done.out + done.err
    assert refusal(secured, "bob", SCRAM_256, "bob-secret") is None


def test_librdkafka_administers_users(secured: SecurePeer, admin: AdminClient) -> None:
    name = unique_name("user")
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    upsert = UserScramCredentialUpsertion(name, scram, b"password", b"salt of the user")
    admin.alter_user_scram_credentials([upsert])[name].result(PATIENCE_SEC)
    (found,) = described(admin, name).scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 5000)
    assert refusal(secured, name, SCRAM_512, "password") is None
    deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])[name].result(PATIENCE_SEC)
    with pytest.raises(KafkaException) as unknown:
        described(admin, name)
    assert unknown.value.args[0].name() == "RESOURCE_NOT_FOUND"


def test_librdkafka_without_rights_is_refused(secured: SecurePeer) -> None:
    bob = AdminClient(librdkafka_config(access(secured, SASL_SSL, "bob")))
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(KafkaException) as refused:
        bob.alter_user_scram_credentials([deletion])["alice"].result(PATIENCE_SEC)
    assert refused.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
    assert refusal(secured, "alice", SCRAM_256, "alice-secret") is None
