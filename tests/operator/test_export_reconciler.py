"""An export becomes a CronJob or a Deployment, and its status says what it has reached."""

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.cluster.iceberg_configs import ENABLE, TABLE, VALUE_FORMAT
from kafscale.cluster.view import ClusterView
from kafscale.formats.export_records import (
    ExportProgress,
    ExportRecord,
    ExportState,
    encode_export_progress,
    encode_export_record,
)
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.operator.exports import metrics
from kafscale.operator.exports.metrics import ExportLags
from kafscale.operator.exports.reconciler import ExportReconciler
from kafscale.operator.kube.kinds import CLUSTER, CRON_JOB, DEPLOYMENT, EXPORT
from kafscale.operator.resource_metrics import EXPORT_RESOURCES, ResourceMetrics
from kafscale.operator.resource_reconciler import AGAIN_SEC, PENDING_AGAIN_SEC
from kafscale.operator.schema.export_status import MAX_ERROR_CHARACTERS, MAX_PARTITIONS, MAX_TOPICS
from tests.operator.one_cluster import OneCluster, live_cluster
from tests.support.kube_exports import KubeExports
from tests.support.kube_memory import NAMESPACE

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp()) * 1000
CONTINUOUS: dict[str, Any] = {"schedule": None, "continuous": {"interval": "30s"}}


@dataclass
class Scene:
    """One cluster with its topics, and an operator of its exports."""

    kube: KubeExports
    store: MemoryStore
    clusters: OneCluster
    registry: CollectorRegistry
    operator: ExportReconciler

    async def look(self, name: str = "e") -> float:
        return await self.operator.reconcile(NAMESPACE, name)

    async def add_topic(self, name: str, *ends: int, **configs: str) -> None:
        """A topic with these log end offsets. `configs`: `enable`, `table`, `format`."""
        named = {"enable": ENABLE, "table": TABLE, "format": VALUE_FORMAT}
        record = TopicRecord(
            name=name,
            topic_id=uuid.uuid4(),
            partition_count=len(ends),
            configs={named[key]: value for key, value in configs.items()},
        )
        await self._put(keys.topic(name), encode_topic_record(record))
        for index, end in enumerate(ends):
            partition = PartitionRecord(leader_epoch=1, log_end_offset=end)
            await self._put(keys.partition(name, index), encode_partition_record(partition))
        view = self.clusters.cluster.view
        async for event in self.store.watch(keys.TOPICS):
            view.apply(keys.TOPICS, event)
            return

    async def add_progress(
        self, topic: str, table: str, positions: Mapping[int, int], holder: str = "other/1", **more: Any
    ) -> None:
        """As an exporter leaves it."""
        fields: dict[str, Any] = {
            "log_end_offsets": positions,
            "rows": 5,
            "dead_letters": 1,
            "updated_ms": NOW_MS - 60_000,
            "state": ExportState.FINISHED,
            "complete_ms": NOW_MS - 90_000,
        }
        progress = ExportProgress(topic=topic, table=table, positions=positions, **(fields | more))
        record = ExportRecord(epoch=1, holder=holder, acquired_ms=5)
        await self._put(keys.export_record(topic), encode_export_record(record))
        await self._put(keys.export_progress(topic, table), encode_export_progress(progress))

    async def _put(self, key: str, value: bytes) -> None:
        await self.store.transact([], [Put(key, value)])

    def sample(self, name: str, topic: str) -> float | None:
        labels = {"namespace": NAMESPACE, "cluster": "c", "export": "e", "topic": topic}
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    store, kube, registry = MemoryStore(), KubeExports(), CollectorRegistry()
    clusters = OneCluster(await live_cluster(store, ClusterView("x")))
    kube.add_cluster()
    operator = ExportReconciler(
        kube,
        clusters,
        lambda _, __: None,
        ResourceMetrics(registry, EXPORT_RESOURCES),
        ExportLags(registry),
        lambda: NOW,
    )
    yield Scene(kube, store, clusters, registry, operator)
    await store.close()


async def test_a_schedule_becomes_a_cron_job_that_is_owned(scene: Scene) -> None:
    scene.kube.add_export(suspend=True)
    assert await scene.look() == AGAIN_SEC
    job = scene.kube.workload(CRON_JOB)
    assert job is not None
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("KafscaleExport", "e", True)
    assert (job["spec"]["schedule"], job["spec"]["suspend"]) == ("*/15 * * * *", True)
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert scene.kube.workload(DEPLOYMENT) is None
    assert scene.kube.verdict()[:2] == ("Ready", "Suspended")
    scene.kube.change_export(suspend=None)
    await scene.look()
    assert scene.kube.verdict()[:2] == ("Ready", "Scheduled")


async def test_a_change_to_continuous_replaces_the_cron_job(scene: Scene) -> None:
    scene.kube.add_export()
    await scene.look()
    scene.kube.change_export(**CONTINUOUS)
    assert await scene.look() == PENDING_AGAIN_SEC
    assert scene.kube.workload(CRON_JOB) is None
    deployment = scene.kube.workload(DEPLOYMENT)
    assert deployment is not None
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert {"--continuous", "--interval=30"} <= set(scene.kube.pod_spec()["containers"][0]["args"])
    assert scene.kube.verdict()[:2] == ("Pending", "PodsNotReady")
    scene.kube.set_status(DEPLOYMENT, {"readyReplicas": 1})
    await scene.look()
    assert scene.kube.verdict()[:2] == ("Ready", "Running")


async def test_a_foreign_object_of_the_name_is_left_alone(scene: Scene) -> None:
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "e-export", "namespace": NAMESPACE, "uid": "theirs"},
        "spec": {"schedule": "@daily"},
    }
    scene.kube.put(dict(foreign))
    scene.kube.add_export()
    await scene.look()
    assert scene.kube.verdict()[:2] == ("Failed", "NameTaken")
    assert scene.kube.workload(CRON_JOB) == foreign
    assert scene.kube.applied == 0


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"args": ["--table=x"]}, "args[0]='--table=x' is not legal: the fields"),
        ({"args": ["--quiet", "orders"]}, "args[1]='orders' is not legal: it must be --option"),
        ({"schedule": "61 * * * *"}, "schedule '61 * * * *' is not legal"),
        ({"topics": {"pattern": "("}}, "topics.pattern='(' is not a regular expression"),
        ({"schedule": None, "continuous": {"interval": "2d"}}, "continuous.interval is not legal"),
        ({"activeDeadline": "5ms"}, "activeDeadline='5ms' is not legal"),
    ],
)
async def test_a_wrong_specification_is_told_and_not_done(
    scene: Scene, parts: dict[str, Any], words: str
) -> None:
    scene.kube.add_export(**parts)
    await scene.look()
    phase, reason, message = scene.kube.verdict()
    assert (phase, reason) == ("Failed", "InvalidSpec")
    assert words in message
    assert scene.kube.applied == 0


async def test_the_status_tells_offsets_lag_and_dead_letters(scene: Scene) -> None:
    await scene.add_topic("orders", 100, 50)
    await scene.add_progress("orders", "lake.kafka.orders", {0: 70, 1: 50})
    scene.kube.add_export()
    await scene.look()
    scene.kube.set_status(CRON_JOB, {"lastScheduleTime": "2026-01-01T11:45:00Z"})
    status = scene.kube.export_status()
    assert {name: status[name] for name in ("topicCount", "failedTopics", "lag", "rows", "deadLetters")} == {
        "topicCount": 1, "failedTopics": 0, "lag": 30, "rows": 5, "deadLetters": 1
    }  # fmt: skip
    assert status["workload"] == "CronJob/e-export"
    assert (status["lastCommitTime"], status["completeTime"]) == (
        "2026-01-01T11:59:00Z",
        "2026-01-01T11:58:30Z",
    )
    (topic,) = status["topics"]
    assert (topic["topic"], topic["table"], topic["state"]) == ("orders", "lake.kafka.orders", "finished")
    assert topic["partitions"] == [
        {"partition": 0, "nextOffset": 70, "logEndOffset": 100},
        {"partition": 1, "nextOffset": 50, "logEndOffset": 50},
    ]
    assert scene.sample(metrics.LAG.name, "orders") == 30
    assert scene.sample(metrics.LAG_SECONDS.name, "orders") == 90
    assert scene.sample(metrics.DEAD_LETTERS.name, "orders") == 1


async def test_a_topic_that_lacks_nothing_has_no_lag(scene: Scene) -> None:
    await scene.add_topic("orders", 70)
    await scene.add_progress("orders", "lake.kafka.orders", {0: 70})
    scene.kube.add_export()
    await scene.look()
    assert scene.sample(metrics.LAG_SECONDS.name, "orders") == 0
    scene.kube.begin_deletion(EXPORT, "e")
    assert await scene.operator.finish(NAMESPACE, "e")
    assert scene.sample(metrics.LAG_SECONDS.name, "orders") is None


async def test_a_topic_that_was_never_exported_waits(scene: Scene) -> None:
    scene.kube.add_export()
    await scene.look()
    status = scene.kube.export_status()
    assert status["topics"] == [{"topic": "orders", "table": "lake.kafka.orders", "state": "waiting"}]
    assert "completeTime" not in status
    assert scene.sample(metrics.LAG.name, "orders") is None


async def test_failed_topics_come_first_and_their_errors_are_cut(scene: Scene) -> None:
    failed = {"state": ExportState.FAILED, "error": "x" * 2000}
    await scene.add_progress("a", "lake.kafka.a", {0: 0}, log_end_offsets={0: 1000})
    await scene.add_progress("b", "lake.kafka.b", {0: 0}, **failed)
    scene.kube.add_export(topics={"names": ["a", "b"]})
    await scene.look()
    phase, reason, message = scene.kube.verdict()
    assert (phase, reason) == ("Failed", "TopicsFailed")
    assert message.startswith("b: xxx")
    topics = scene.kube.export_status()["topics"]
    assert [topic["topic"] for topic in topics] == ["b", "a"]
    assert len(topics[0]["error"]) == MAX_ERROR_CHARACTERS


async def test_the_status_is_bounded(scene: Scene) -> None:
    names = [f"t{number:03}" for number in range(150)]
    for number, name in enumerate(names):
        positions = dict.fromkeys(range(60), 0)
        await scene.add_progress(
            name,
            f"lake.kafka.{name}",
            positions,
            log_end_offsets={partition: number * partition for partition in positions},
            state=ExportState.FAILED,
            error="ä" * 2000,
        )
    scene.kube.add_export(topics={"names": names})
    await scene.look()
    status = scene.kube.export_status()
    assert (status["topicCount"], status["omittedTopics"]) == (150, 150 - MAX_TOPICS)
    assert [topic["topic"] for topic in status["topics"]] == names[: -MAX_TOPICS - 1 : -1]
    assert {len(topic["partitions"]) for topic in status["topics"]} == {MAX_PARTITIONS}
    assert status["topics"][0]["partitions"][0]["partition"] == 59
    assert status["lag"] == sum(number * sum(range(60)) for number in range(150))
    assert len(json.dumps(status)) < 65_536
    assert len(json.dumps(scene.kube.verdict()[2])) < 16_384


async def test_topics_by_config_are_those_that_are_on(scene: Scene) -> None:
    await scene.add_topic("on", 3, enable="true")
    await scene.add_topic("named", 3, enable="true", table="sales.people")
    await scene.add_topic("off", 3)
    await scene.add_progress("named", "lake.sales.people", {0: 1})
    await scene.add_progress("off", "lake.kafka.off", {0: 1})
    scene.kube.add_export(topics={"byConfig": True}, table={"namespaces": ["sales"]})
    await scene.look()
    found = {one["topic"]: (one["table"], one["state"]) for one in scene.kube.export_status()["topics"]}
    assert found == {
        "named": ("lake.sales.people", "finished"),
        "on": ("lake.kafka.on", "waiting"),
    }


async def test_topics_that_no_exporter_would_take_are_failed(scene: Scene) -> None:
    await scene.add_topic("a", 3, enable="true", table="finance.ledger")
    await scene.add_topic("b", 3, enable="true", format="json")
    await scene.add_topic("c", 3, enable="true", format="xml")
    await scene.add_topic("d", 3, enable="true")
    catalog = {"type": "sql", "warehouse": "s3://lake/tables"}
    scene.kube.add_export(topics={"byConfig": True}, engine="Python", catalog=catalog)
    await scene.look()
    phase, reason, message = scene.kube.verdict()
    assert (phase, reason) == ("Failed", "TopicsFailed")
    for words in (
        "a: topic config kafscale.iceberg.table=finance.ledger",
        "b: topic config",
        "'xml' is not legal",
    ):
        assert words in message
    found = {one["topic"]: one["state"] for one in scene.kube.export_status()["topics"]}
    assert found == {"a": "failed", "b": "failed", "c": "failed", "d": "waiting"}
    scene.kube.change_export(engine=None)
    await scene.look()
    assert scene.kube.export_status()["failedTopics"] == 2, "Spark decodes JSON"


async def test_topics_of_a_pattern_are_those_that_its_pods_had(scene: Scene) -> None:
    for name, holder in (("a", "e-export-29-x/7"), ("b", "other-export-29-x/7"), ("c", "e-export-5/1")):
        await scene.add_topic(name, 3)
        await scene.add_progress(name, f"lake.kafka.{name}", {0: 3}, holder)
    scene.kube.add_export(topics={"pattern": "(a+)+$"})
    await scene.look()
    assert [one["topic"] for one in scene.kube.export_status()["topics"]] == ["a", "c"]


async def test_a_run_that_did_not_succeed_is_told(scene: Scene) -> None:
    scene.kube.add_export()
    await scene.look()
    failed = {"lastScheduleTime": "2026-01-01T11:45:00Z", "lastSuccessfulTime": "2026-01-01T11:31:00Z"}
    scene.kube.set_status(CRON_JOB, {**failed, "active": [{"name": "e-export-1"}]})
    await scene.look()
    assert scene.kube.verdict()[:2] == ("Ready", "Scheduled"), "it runs"
    scene.kube.set_status(CRON_JOB, failed)
    await scene.look()
    assert scene.kube.verdict()[:2] == ("Failed", "RunFailed")
    assert scene.kube.export_status()["lastSuccessfulTime"] == "2026-01-01T11:31:00Z"


async def test_a_pod_that_cannot_start_is_told(scene: Scene) -> None:
    scene.kube.add_export()
    scene.kube.add_waiting_pod("e-export-1", "ImagePullBackOff")
    await scene.look()
    assert scene.kube.verdict() == (
        "Pending",
        "PodsNotReady",
        "e-export-1: ImagePullBackOff: because",
    )


async def test_without_its_cluster_nothing_is_made(scene: Scene) -> None:
    scene.kube.remove(CLUSTER, "c")
    scene.kube.add_export()
    assert await scene.look() == PENDING_AGAIN_SEC
    assert scene.kube.verdict()[:2] == ("Pending", "ClusterNotFound")
    assert scene.kube.applied == 0


async def test_a_second_pass_writes_no_status(scene: Scene) -> None:
    await scene.add_topic("orders", 100)
    await scene.add_progress("orders", "lake.kafka.orders", {0: 70})
    scene.kube.add_export()
    await scene.look()
    before = (await scene.kube.find(EXPORT, NAMESPACE, "e") or {})["metadata"]["resourceVersion"]
    await scene.look()
    assert (await scene.kube.find(EXPORT, NAMESPACE, "e") or {})["metadata"]["resourceVersion"] == before
