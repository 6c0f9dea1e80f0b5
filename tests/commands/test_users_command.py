"""`kafscale users`: on the embedded store before the first start and beside a broker, and on etcd at any time."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafscale.commands.cli import main
from tests.support.broker import running_broker
from tests.support.etcd_server import etcd_server

pytestmark = pytest.mark.usefixtures("logging_as_before")

PASSWORD = "a secret: with, =signs"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"KAFSCALE_DATA_DIR": str(tmp_path / "data")}


def users(environment: dict[str, str], *arguments: str, password: str | None = None) -> Result:
    return CliRunner().invoke(main, ["users", *arguments], env=environment, input=password)


def add(environment: dict[str, str], name: str, *options: str, password: str = PASSWORD) -> Result:
    return users(environment, "add", name, "--password-stdin", *options, password=password + "\n")


def listed(environment: dict[str, str]) -> dict[str, dict[str, int]]:
    result = users(environment, "list", "--json")
    assert result.exit_code == 0, result.output
    return {user["name"]: user["mechanisms"] for user in json.loads(result.stdout)["users"]}


def test_users_are_added_changed_and_removed(environment: dict[str, str]) -> None:
    assert add(environment, "alice").exit_code == 0
    assert add(environment, "bob/é", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192").exit_code == 0
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert listed(environment) == {"alice": both, "bob/é": {"SCRAM-SHA-512": 8192}}

    assert add(environment, "alice", "--mechanism", "SCRAM-SHA-256", "--iterations", "5000").exit_code == 0
    assert listed(environment)["alice"] == {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 4096}

    assert users(environment, "remove", "alice", "--mechanism", "SCRAM-SHA-512").exit_code == 0
    assert listed(environment)["alice"] == {"SCRAM-SHA-256": 5000}
    assert users(environment, "remove", "bob/é").exit_code == 0
    assert list(listed(environment)) == ["alice"]


@pytest.mark.parametrize(
    ("arguments", "password", "text"),
    [
        (("add", "alice", "--password-stdin"), "", "password must be one line"),
        (("add", "alice", "--password-stdin"), "two\nlines\n", "password must be one line"),
        (("add", "alice", "--password-stdin"), "x" * 1025, "password must be one line"),
        (("add", "", "--password-stdin"), "x", "name must have"),
        (("add", "alice"), "x", "--password-stdin is needed"),
        (("add", "alice", "--password-stdin", "--iterations", "4095"), "x", "4096<=x<=16384"),
        (("add", "alice", "--password-stdin", "--mechanism", "PLAIN"), "x", "SCRAM-SHA-256"),
        (("remove", "nobody"), None, "no such user"),
    ],
)
def test_what_is_not_legal_is_refused(
    environment: dict[str, str], arguments: tuple[str, ...], password: str | None, text: str
) -> None:
    result = users(environment, *arguments, password=password)
    assert result.exit_code == 2
    assert text in result.output
    assert "x" * 10 not in result.output


def test_embedded_store_of_a_running_broker_is_listed_only(tmp_path: Path) -> None:
    environment = {"KAFSCALE_DATA_DIR": str(tmp_path / "data")}
    assert add(environment, "alice").exit_code == 0
    with running_broker(tmp_path):
        assert list(listed(environment)) == ["alice"]
        refused = add(environment, "bob")
        assert refused.exit_code == 1
        assert "data" in refused.output
    assert list(listed(environment)) == ["alice"]


def test_users_are_added_on_etcd(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        environment = {
            "KAFSCALE_ETCD_ENDPOINTS": server.endpoint,
            "KAFSCALE_S3_BUCKET": "bucket",
            "KAFSCALE_S3_ENDPOINT": "http://127.0.0.1:1",
        }
        assert add(environment, "alice").exit_code == 0
        assert users(environment, "remove", "alice").exit_code == 0
        assert users(environment, "remove", "alice").exit_code == 2


def test_password_is_in_no_help_and_no_output(environment: dict[str, str]) -> None:
    result = add(environment, "alice")
    assert result.output == ""
    assert "--password " not in users(environment, "add", "--help").output
