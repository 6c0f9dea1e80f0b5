"""A cluster of `kafscale.testing`."""

import threading

import pytest
from confluent_kafka.admin import AdminClient

from kafscale.testing import KafkaCluster


def test_brokers_form_one_cluster_and_share_its_partitions() -> None:
    with KafkaCluster(3) as cluster:
        cluster.create_topic("orders", partitions=12)
        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("orders", timeout=30)
        assert sorted(metadata.brokers) == [0, 1, 2]
        assert {f"{one.host}:{one.port}" for one in metadata.brokers.values()} == set(
            cluster.bootstrap.split(",")
        )
        assert {one.leader for one in metadata.topics["orders"].partitions.values()} == {0, 1, 2}
        for number in range(24):
            cluster.produce("orders", str(number))
        assert len(cluster.records("orders")) == 24
        assert cluster.brokers[2].records("orders") == cluster.records("orders")
        assert [broker.broker_id for broker in cluster.brokers] == [0, 1, 2]


async def test_cluster_can_be_awaited() -> None:
    async with KafkaCluster(2) as cluster:
        await cluster.aio.create_topic("orders", partitions=2)
        await cluster.aio.produce("orders", "x")
        assert len(await cluster.aio.records("orders")) == 1


def test_cluster_uses_one_thread_and_leaves_none() -> None:
    before = set(threading.enumerate())
    with KafkaCluster(3):
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) <= before


def test_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="a cluster of 0 brokers is not legal"):
        KafkaCluster(0)


def test_broker_ids_are_the_clusters() -> None:
    with pytest.raises(TypeError, match="'broker_id'"):
        KafkaCluster(2, broker_id=7)
