"""A cluster whose brokers are in three zones."""

from collections.abc import Iterator

import pytest

from tests.support.zoned_cluster import ZonedCluster, cluster_missing, zoned_cluster


@pytest.fixture(scope="package")
def shared_cluster(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZonedCluster]:
    """Three brokers for all tests of this package; `cluster` gives them in good order."""
    reason = "there is one Apache Kafka only" if peer_kind == "kafka" else cluster_missing()
    if reason:
        pytest.skip(reason)
    with zoned_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: ZonedCluster) -> ZonedCluster:
    """Three brokers, all of them up, whatever the test before did to them."""
    shared_cluster.cluster.heal()
    return shared_cluster
