"""Two brokers on one etcd: one deletes an access rule, and the other refuses its client within a second."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

from kafscale.protocol.acl_codes import Operation, PatternType, Permission, ResourceType
from tests.support import wire
from tests.support.client_security import ssl_context
from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import etcd_server
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.secure_cluster import WRITER, ClusterSecurity
from tests.support.waiting import wait_until

MISSING = etcd_missing() or s3_server_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

TOPIC: Final = "t"
ROUNDS: Final = 5
LIMIT_SEC: Final = 1.0
TOPIC_AUTHORIZATION_FAILED: Final = 29
ACLS_VERSION: Final = 2


@pytest.fixture
def security(tmp_path: Path) -> ClusterSecurity:
    return ClusterSecurity(tmp_path / "certificates")


@pytest.fixture
def cluster(tmp_path: Path, security: ClusterSecurity) -> Iterator[Cluster]:
    """Two brokers with an authorizer, and a topic of which each leads some partition."""
    with s3_server(tmp_path / "s3") as s3, etcd_server(tmp_path / "etcd") as etcd:
        stores = ClusterStores.of((etcd.endpoint,), s3)
        settings = {"make_broker": security.make_broker, "flush_interval_ms": 5}
        with running_cluster(tmp_path, stores, brokers=2, **settings) as cluster:
            cluster.create_topic(TOPIC, 4)
            yield cluster


def test_deleted_rule_is_refused_by_second_broker_in_a_second(
    cluster: Cluster, security: ClusterSecurity
) -> None:
    first, second = cluster.brokers[1], cluster.brokers[2]
    partition = cluster.led_by(2, TOPIC)[0]
    writer = ssl_context(security.certificate_way(WRITER))
    granted, revoked = [], []
    with (
        wire.connect(first) as admin,
        contextlib.closing(wire.Wire(second.host, second.port, tls=writer)) as client,
    ):

        def code() -> int:
            return int(wire.produce(client, TOPIC, partition, wire.batch([b"value"])).error_code)

        assert code() == TOPIC_AUTHORIZATION_FAILED
        for _ in range(ROUNDS):
            create_rule(admin)
            granted.append(seconds_until(lambda: code() == 0))
            delete_rule(admin)
            revoked.append(seconds_until(lambda: code() == TOPIC_AUTHORIZATION_FAILED))
            assert code() == TOPIC_AUTHORIZATION_FAILED
    print(f"granted after {shown(granted)}, revoked after {shown(revoked)}")
    assert statistics.median(granted) < LIMIT_SEC
    assert statistics.median(revoked) < LIMIT_SEC


def create_rule(admin: wire.Wire) -> None:
    """Let the writer write to the topic; returns when the broker has answered."""
    rule = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=TOPIC,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{WRITER}",
        host="*",
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )
    reply = admin.call(CreateAclsRequest(creations=[rule]), CreateAclsResponse, ACLS_VERSION)
    assert [one.error_code for one in reply.results] == [0], reply


def delete_rule(admin: wire.Wire) -> None:
    """Delete that rule; returns when the broker has answered."""
    rule = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=TOPIC,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=f"User:{WRITER}",
        host_filter="*",
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )
    reply = admin.call(DeleteAclsRequest(filters=[rule]), DeleteAclsResponse, ACLS_VERSION)
    assert [len(one.matching_acls) for one in reply.filter_results] == [1], reply


def seconds_until(condition: Callable[[], bool]) -> float:
    """Ask again and again until it is so; how long that took."""
    began = time.monotonic()
    wait_until(condition, "the second broker has the rule's change")
    return time.monotonic() - began


def shown(seconds: list[float]) -> str:
    return ", ".join(f"{one * 1000:.0f}" for one in sorted(seconds)) + " ms"
