"""A topic becomes what its resource says, whoever interferes, and nothing that is not the resource's is touched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.cluster.cluster_record import kafka_uuid_text
from kafscale.cluster.new_topic import NewTopic
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import Delete, Put
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.resource_metrics import TOPIC_RESOURCES, ResourceMetrics
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.topics.reconciler import TopicReconciler
from kafscale.operator.topics.work import TopicWork
from tests.operator.one_cluster import OneCluster, live_cluster
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, control_plane, memory_stores
from tests.support.kube_memory import NAMESPACE, KubeMemory
from tests.support.waiting import wait_until_async


@dataclass
class Scene:
    """One cluster with one broker, and an operator of its topics."""

    kube: KubeMemory
    plane: ControlPlane
    clusters: OneCluster
    reconciler: TopicReconciler
    woken: list[str]
    registry: CollectorRegistry

    def count(self, phase: str) -> float | None:
        """By the metric."""
        labels = {"namespace": NAMESPACE, "cluster": "c", "phase": phase}
        return self.registry.get_sample_value("kafscale_topic_resources", labels)

    async def look(self, name: str = "t") -> float:
        return await self.reconciler.reconcile(NAMESPACE, name)

    async def finish(self, name: str = "t") -> bool:
        return await self.reconciler.finish(NAMESPACE, name)

    async def finished(self, name: str = "t") -> None:
        async def done() -> bool:
            return await self.finish(name)

        await wait_until_async(done, f"the resource {name} may go")

    async def found(self, name: str = "t") -> TopicRecord | None:
        return await TopicWork(self.clusters.cluster).find(name)

    async def topic(self, name: str = "t") -> TopicRecord:
        record = await self.found(name)
        assert record is not None
        return record

    async def by_kafka(self, name: str = "t", partition_count: int = 1, **configs: str) -> TopicRecord:
        topic = NewTopic(name=name, partition_count=partition_count, configs=_dotted(configs))
        return await self.plane.topics.create(topic, timeout_ms=TIMEOUT_MS)

    async def alter_by_kafka(self, name: str = "t", **configs: str) -> None:
        await self.plane.topics.alter_configs(
            name, lambda before: {**before, **_dotted(configs)}, timeout_ms=TIMEOUT_MS
        )

    async def delete_by_kafka(self, name: str = "t") -> None:
        await self.plane.topics.delete(name, timeout_ms=TIMEOUT_MS)


def _dotted(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(*memory_stores()))
        clusters = OneCluster(await live_cluster(plane.store, plane.view))
        kube, woken = KubeMemory(), list[str]()
        kube.add_cluster()
        registry = CollectorRegistry()
        reconciler = TopicReconciler(
            kube, clusters, lambda _, name: woken.append(name), ResourceMetrics(registry, TOPIC_RESOURCES)
        )
        yield Scene(kube, plane, clusters, reconciler, woken, registry)


async def test_a_topic_is_made(scene: Scene) -> None:
    scene.kube.add_topic(
        "t", partitions=3, retention="24h", compression="zstd", config={"segment.bytes": 2000000}
    )
    await scene.look()
    topic = await scene.topic()
    configs = {"retention.ms": "86400000", "compression.type": "zstd", "segment.bytes": "2000000"}
    assert (topic.partition_count, topic.configs) == (3, configs)
    status = scene.kube.status("t")
    assert (status["phase"], status["observedGeneration"], status["topicName"]) == ("Ready", 1, "t")
    assert (status["topicId"], status["partitions"]) == (kafka_uuid_text(topic.topic_id), 3)
    assert status["appliedConfig"] == configs
    assert scene.kube.condition("t")[:2] == ("True", "AsDeclared")
    assert [reason for reason, _ in scene.kube.events] == ["TopicCreated", "AsDeclared"]
    assert scene.kube.warnings == []


async def test_its_name_in_kafka_may_be_another(scene: Scene) -> None:
    scene.kube.add_topic("t", topicName="Orders_1")
    await scene.look()
    assert (await scene.topic("Orders_1")).partition_count == 1
    assert await scene.found("t") is None


async def test_a_second_pass_changes_nothing(scene: Scene) -> None:
    scene.kube.add_topic("t", retention="24h")
    await scene.look()
    version = scene.kube.topic("t")["metadata"]["resourceVersion"]
    before = (await scene.plane.store.range("")).revision
    await scene.look()
    assert scene.kube.topic("t")["metadata"]["resourceVersion"] == version
    assert (await scene.plane.store.range("")).revision == before
    assert len(scene.kube.events) == 2


async def test_a_topic_that_is_there_is_taken_on_as_it_is(scene: Scene) -> None:
    before = await scene.by_kafka(partition_count=5, retention_ms="7000", segment_bytes="3000000")
    scene.kube.add_topic("t", partitions=3, config={"retention.ms": 9000})
    await scene.look()
    topic = await scene.topic()
    assert topic.topic_id == before.topic_id
    assert topic.partition_count == 5
    assert topic.configs == {"retention.ms": "9000", "segment.bytes": "3000000"}
    assert "5 partitions, 3 are wanted" in scene.kube.condition("t")[2]
    assert scene.kube.status("t")["appliedConfig"] == {"retention.ms": "9000"}


async def test_partitions_are_added(scene: Scene) -> None:
    scene.kube.add_topic("t", partitions=2)
    await scene.look()
    scene.kube.change("t", partitions=4)
    await scene.look()
    assert (await scene.topic()).partition_count == 4
    assert scene.kube.status("t")["partitions"] == 4
    assert len(await scene.plane.keys_under(keys.partitions("t"))) == 4


async def test_configs_follow_resource_and_keep_administrators_own(scene: Scene) -> None:
    scene.kube.add_topic("t", config={"retention.ms": 1000, "segment.bytes": 2000000})
    await scene.look()
    await scene.alter_by_kafka(max_message_bytes="777")
    scene.kube.change("t", config={"retention.ms": 2000})
    await scene.look()
    assert (await scene.topic()).configs == {"retention.ms": "2000", "max.message.bytes": "777"}
    assert scene.kube.status("t")["appliedConfig"] == {"retention.ms": "2000"}


async def test_drift_of_what_is_declared_is_corrected_with_a_warning(scene: Scene) -> None:
    scene.kube.add_topic("t", config={"retention.ms": 1000})
    await scene.look()
    await scene.alter_by_kafka(retention_ms="5")
    await scene.look()
    assert (await scene.topic()).configs == {"retention.ms": "1000"}
    assert scene.kube.warnings == ["DriftCorrected"]


async def test_a_topic_that_an_administrator_deleted_is_made_again(scene: Scene) -> None:
    scene.kube.add_topic("t", config={"retention.ms": 1000})
    await scene.look()
    first = await scene.topic()
    await scene.delete_by_kafka()
    await scene.look()
    second = await scene.topic()
    assert second.topic_id != first.topic_id
    assert second.configs == {"retention.ms": "1000"}
    assert scene.kube.status("t")["topicId"] == kafka_uuid_text(second.topic_id)
    assert scene.kube.warnings == ["DriftCorrected"]


async def test_a_topic_that_is_being_deleted_is_waited_for(scene: Scene) -> None:
    scene.kube.add_topic("t")
    await scene.look()
    await scene.plane.deletion.close()  # nobody removes records now
    with pytest.raises(Exception, match="REQUEST_TIMED_OUT"):
        await scene.plane.topics.delete("t", timeout_ms=1)
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Pending"
    assert scene.kube.condition("t")[1] == "TopicBeingDeleted"
    assert (await scene.topic()).state is TopicState.DELETING
    scene.plane.deletion.start()
    await wait_until_async(lambda: _is_gone(scene, "t"), "the topic is gone")
    await scene.look()
    assert (await scene.topic()).state is TopicState.ACTIVE


async def _is_gone(scene: Scene, name: str) -> bool:
    return await scene.found(name) is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"config": {"retention.ms": "soon"}}, ["retention.ms", "soon"]),
        ({"config": {"segment.bytes": 3 * 2**30}}, ["segment.bytes", "feature level 2"]),
        ({"topicName": "__cluster_metadata"}, ["__cluster_metadata"]),
    ],
)
async def test_what_cannot_be_is_said_and_nothing_is_written(
    scene: Scene, parts: dict[str, Any], words: list[str]
) -> None:
    before = (await scene.plane.store.range("")).revision
    scene.kube.add_topic("t", **parts)
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Failed"
    state, _, message = scene.kube.condition("t")
    assert state == "False"
    assert all(word in message for word in words)
    assert (await scene.plane.store.range("")).revision == before


async def test_a_name_that_collides_is_refused_until_the_other_is_gone(scene: Scene) -> None:
    await scene.by_kafka("a.b")
    scene.kube.add_topic("t", topicName="a_b")
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Failed"
    assert "a.b" in scene.kube.condition("t")[2]
    await scene.delete_by_kafka("a.b")
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Ready"


async def test_a_cluster_that_is_not_there_is_waited_for(scene: Scene) -> None:
    scene.kube.add_topic("t", cluster="other")
    await scene.look()
    assert scene.kube.condition("t")[:2] == ("False", "ClusterNotFound")
    assert "other" in scene.kube.condition("t")[2]
    scene.kube.add_cluster("other")
    scene.reconciler.changed(NAMESPACE, "other", None)
    assert scene.woken == ["t"]
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Ready"


async def test_a_cluster_that_is_not_ready_is_waited_for(scene: Scene) -> None:
    scene.kube.add_topic("t")
    scene.clusters.problem = NotReadyError("ClusterNotStarted", "no broker has started yet")
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Pending"
    assert scene.kube.condition("t") == ("False", "ClusterNotStarted", "no broker has started yet")
    scene.clusters.problem = None
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Ready"


async def test_nothing_is_made_in_a_metadata_store_that_was_emptied(scene: Scene) -> None:
    scene.kube.add_topic("t")
    await scene.plane.store.transact([], [Delete(keys.CLUSTER)])
    await scene.look()
    assert scene.kube.status("t")["phase"] == "Pending"
    assert "emptied" in scene.kube.condition("t")[2]
    assert await scene.plane.keys_under(keys.TOPICS) == []
    assert await scene.plane.keys_under(keys.PARTITIONS) == []


async def test_only_those_who_name_a_topic_are_woken(scene: Scene) -> None:
    for name in ("t", "u"):
        scene.kube.add_topic(name)
        await scene.look(name)
    scene.reconciler.changed(NAMESPACE, "c", "u")
    assert scene.woken == ["u"]
    scene.reconciler.changed(NAMESPACE, "another", None)
    assert scene.woken == ["u"]
    scene.reconciler.changed(NAMESPACE, "c", None)
    assert sorted(scene.woken[1:]) == ["t", "u"]


async def test_without_its_finalizer_nothing_is_made(scene: Scene) -> None:
    scene.kube.add_topic("t")
    scene.kube.topic("t")["metadata"]["finalizers"] = []
    await scene.look()
    assert await scene.found() is None
    assert scene.kube.status("t") == {}


async def test_of_two_resources_the_first_has_the_topic(scene: Scene) -> None:
    scene.kube.add_topic("first", topicName="t", partitions=2)
    scene.kube.add_topic("second", topicName="t", partitions=8)
    for _ in range(2):
        await asyncio.gather(scene.look("second"), scene.look("first"))
    assert (await scene.topic()).partition_count == 2
    assert scene.kube.status("first")["phase"] == "Ready"
    assert scene.kube.condition("second")[:2] == ("False", "TopicNamedTwice")
    assert "first" in scene.kube.condition("second")[2]
    assert "topicName" not in scene.kube.status("second")


async def test_who_has_the_topic_keeps_it_though_another_is_older(scene: Scene) -> None:
    scene.kube.add_topic("older", topicName="other", partitions=8)
    scene.kube.add_topic("t", partitions=2)
    await scene.look()
    scene.kube.topic("older")["spec"]["topicName"] = "t"
    await scene.look("older")
    assert scene.kube.condition("older")[1] == "TopicNamedTwice"
    assert (await scene.topic()).partition_count == 2


async def test_the_second_resource_removes_nothing(scene: Scene) -> None:
    scene.kube.add_topic("first", topicName="t")
    scene.kube.add_topic("second", topicName="t")
    await scene.look("first")
    await scene.look("second")
    scene.kube.begin_deletion(TOPIC, "second")
    assert await scene.finish("second")
    assert (await scene.topic()).state is TopicState.ACTIVE


async def test_second_resource_inherits_topic_with_its_records(scene: Scene) -> None:
    scene.kube.add_topic("first", topicName="t", partitions=2)
    scene.kube.add_topic("second", topicName="t", partitions=3)
    await scene.look("first")
    await scene.look("second")
    before = await scene.topic()
    scene.kube.begin_deletion(TOPIC, "first")
    assert await scene.finish("first")
    assert scene.woken == ["second"]
    scene.kube.remove(TOPIC, "first")
    await scene.look("second")
    after = await scene.topic()
    assert (after.topic_id, after.partition_count) == (before.topic_id, 3)
    assert ("TopicKept", "topic t is kept: second names it, too") in scene.kube.events


async def test_a_topic_goes_with_its_resource(scene: Scene) -> None:
    scene.kube.add_topic("t", partitions=2)
    await scene.look()
    scene.kube.begin_deletion(TOPIC, "t")
    await scene.finished()
    assert await scene.found() is None
    assert await scene.plane.keys_under(keys.PARTITIONS) == []
    assert scene.kube.events[-1][0] == "TopicDeleted"


async def test_a_topic_that_is_to_be_retained_stays(scene: Scene) -> None:
    scene.kube.add_topic("t", deletionPolicy="Retain")
    await scene.look()
    scene.kube.begin_deletion(TOPIC, "t")
    assert await scene.finish()
    assert (await scene.topic()).state is TopicState.ACTIVE
    assert scene.kube.events[-1][0] == "TopicKept"


async def test_a_resource_that_never_had_a_topic_removes_none(scene: Scene) -> None:
    await scene.by_kafka(partition_count=2)
    scene.kube.add_topic("t", config={"retention.ms": "soon"})
    await scene.look()
    scene.kube.begin_deletion(TOPIC, "t")
    assert await scene.finish()
    assert (await scene.topic()).state is TopicState.ACTIVE


async def test_another_topic_of_the_name_is_not_removed(scene: Scene) -> None:
    scene.kube.add_topic("t")
    await scene.look()
    await scene.delete_by_kafka()
    await scene.by_kafka()
    scene.kube.begin_deletion(TOPIC, "t")
    assert await scene.finish()
    assert (await scene.topic()).state is TopicState.ACTIVE
    assert "another topic" in scene.kube.events[-1][1]


@pytest.mark.parametrize("is_gone", [True, False])
async def test_with_a_cluster_that_goes_topics_are_left_as_they_are(scene: Scene, is_gone: bool) -> None:
    scene.kube.add_topic("t")
    await scene.look()
    if is_gone:
        scene.kube.remove(CLUSTER, "c")
    else:
        scene.kube.begin_deletion(CLUSTER, "c")
    scene.kube.begin_deletion(TOPIC, "t")
    assert await scene.finish()
    assert (await scene.topic()).state is TopicState.ACTIVE


async def test_resource_stays_and_reports_unavailable_metadata(scene: Scene) -> None:
    scene.kube.add_topic("t")
    await scene.look()
    scene.kube.begin_deletion(TOPIC, "t")
    scene.clusters.problem = NotReadyError("MetadataStoreUnreachable", "it does not answer")
    assert not await scene.finish()
    assert scene.kube.status("t")["phase"] == "Deleting"
    assert scene.kube.condition("t") == ("False", "Deleting", "it does not answer")
    scene.clusters.problem = None
    await scene.finished()
    assert await scene.found() is None


async def test_resource_stays_and_reports_a_damaged_record(scene: Scene) -> None:
    """It is there to be looked at, and does not end the pass with an exception."""
    scene.kube.add_topic("t")
    await scene.look()
    scene.kube.begin_deletion(TOPIC, "t")
    await scene.plane.store.transact([], [Put(keys.topic("t"), b"no record")])
    assert not await scene.finish()
    assert scene.kube.status("t")["phase"] == "Deleting"
    is_ready, reason, message = scene.kube.condition("t")
    assert (is_ready, reason) == ("False", "Deleting")
    assert keys.topic("t") in message


async def test_a_pass_over_a_resource_that_goes_makes_nothing(scene: Scene) -> None:
    scene.kube.add_topic("t")
    scene.kube.begin_deletion(TOPIC, "t")
    await scene.look()
    assert await scene.found() is None


async def test_cancelled_pass_ends_before_the_topic_is_deleted(scene: Scene) -> None:
    scene.kube.add_topic("t")
    looking = asyncio.create_task(scene.look())
    scene.kube.after_next_put = looking.cancel
    assert isinstance((await asyncio.gather(looking, return_exceptions=True))[0], asyncio.CancelledError)
    scene.kube.begin_deletion(TOPIC, "t")
    await scene.finished()
    events = [reason for reason, _ in scene.kube.events]
    assert events.index("TopicCreated") < events.index("TopicDeleted") == len(events) - 1
    assert await scene.found() is None


async def test_spec_changed_during_pass_is_reconciled_at_once(scene: Scene) -> None:
    scene.kube.add_topic("t", partitions=1)
    scene.kube.after_next_put = lambda: scene.kube.change("t", partitions=2)
    assert await scene.look() < 1
    assert (await scene.topic()).partition_count == 1
    await scene.look()
    assert (await scene.topic()).partition_count == 2
    assert scene.kube.status("t")["observedGeneration"] == 2


async def test_the_metric_counts_resources_by_phase(scene: Scene) -> None:
    assert scene.count("Ready") is None
    for name in ("t", "u"):
        scene.kube.add_topic(name)
        await scene.look(name)
    scene.kube.add_topic("wrong", config={"no.such.config": 1})
    await scene.look("wrong")
    assert [scene.count(phase) for phase in ("Pending", "Ready", "Failed", "Deleting")] == [0, 2, 1, 0]
    scene.clusters.problem = NotReadyError("MetadataStoreUnreachable", "it does not answer")
    scene.kube.begin_deletion(TOPIC, "t")
    assert not await scene.finish("t")
    assert (scene.count("Ready"), scene.count("Deleting")) == (1, 1)
    scene.clusters.problem = None
    await scene.finished("t")
    assert (scene.count("Ready"), scene.count("Deleting")) == (1, 0)
