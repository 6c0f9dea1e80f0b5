"""Users' lives under the operator: a real API server, a real etcd, a real broker with TLS, SASL and access rules."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.kube_api import KubeApi
from tests.support.operated_users import USER, OperatedUsers, make_topic, produced, topics_of
from tests.support.operator_process import OperatorProcess
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def users(
    api: KubeApi, operator: OperatorProcess, etcd: EtcdServer, s3: S3Server, tmp_path: Path
) -> Iterator[OperatedUsers]:
    """A cluster with the default of security and a listener for certificates, one broker, and the operator."""
    found = OperatedUsers(api, etcd, s3, tmp_path)
    try:
        found.start_brokers()
        found.wait_ready("c-admin")
        yield found
    finally:
        found.close()


def rules(*operations: str, topic: str = "orders") -> dict[str, object]:
    return {"acls": [{"resource": {"type": "topic", "name": topic}, "operations": list(operations)}]}


def test_administrator_and_declared_users_are_let_in(users: OperatedUsers) -> None:
    admin = users.by_password("c-admin", users.password("c-admin"))
    make_topic(admin, "orders")
    make_topic(admin, "secret")
    users.make("writer", authentication={"type": "scram-sha-512"}, authorization=rules("Write"))
    users.make("reader", authentication={"type": "tls"}, authorization=rules("Read"))
    users.wait_ready("writer")
    users.wait_ready("reader")
    writer = users.by_password("writer", users.password("writer"))
    reader = users.by_certificate("reader")
    assert topics_of(writer) == topics_of(reader) == {"orders"}
    assert produced(writer, "orders") == ""
    assert produced(reader, "orders") == "TOPIC_AUTHORIZATION_FAILED"
    assert topics_of(users.by_password("writer", "wrong")) is None
    status = str(users.api.get(USER, "writer"))
    assert users.password("writer") not in status


def test_rotated_password_replaces_the_old_one(users: OperatedUsers) -> None:
    users.make("u", authentication={"type": "scram-sha-512"}, authorization=rules("Read"))
    users.wait_ready("u")
    first = users.password("u")
    assert topics_of(users.by_password("u", first)) is not None
    users.rotate("u", "1")
    users.wait(lambda: users.password("u") != first, "there is another password", "u")
    second = users.password("u")
    users.wait(lambda: topics_of(users.by_password("u", second)) is not None, "it works", "u")
    assert topics_of(users.by_password("u", first)) is None


def test_deleted_user_is_let_in_no_more(users: OperatedUsers) -> None:
    users.make("u", authentication={"type": "scram-sha-512"}, quotas={"producerByteRate": 1000})
    users.wait_ready("u")
    client = users.by_password("u", users.password("u"))
    assert topics_of(client) is not None
    users.api.delete(USER, "u")
    users.wait_gone("u")
    users.wait(lambda: topics_of(client) is None, "it is refused", "u")
