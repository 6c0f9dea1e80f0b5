"""A cluster's backups are kept fresh, and its status, events and metrics say how they are."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.errors import StartupError, StoreUnavailableError
from kafscale.formats.snapshot_file import SnapshotHeader
from kafscale.operator.backups.metrics import BackupMetrics
from kafscale.operator.backups.reconciler import AGAIN_SEC, CONDITION, SHARE, BackupReconciler
from kafscale.operator.backups.runner import BackupOutcome
from kafscale.operator.cluster_spec import Backups, ClusterSpec
from kafscale.operator.conditions import find
from kafscale.operator.errors import KubeUnreachableError, LeadershipLostError
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.tools.backup.snapshot_keys import StoredSnapshot
from kafscale.tools.backup.snapshots import NothingToBackUpError, Taken
from tests.support.kube_memory import NAMESPACE, KubeMemory

BEGIN = datetime(2026, 11, 22, 2, 10, tzinfo=UTC)
S3 = {"bucket": "backups"}


class Api(KubeMemory):
    """With server-side apply of a status, by one manager."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0
        self.of_cluster: dict[str, Any] = {}

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        found = await super().find(kind, namespace, name)
        return None if found is None else {**found, "status": self.of_cluster}

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any], *, field_manager: str
    ) -> dict[str, Any]:
        assert (kind, namespace, name, field_manager) == (CLUSTER, NAMESPACE, "c", SHARE.manager)
        self.applied += 1
        self.of_cluster = dict(status)
        return self.of_cluster


class Scene:
    """One cluster; snapshots are what the test says they are."""

    def __init__(self, **backups: Any) -> None:
        self.api = Api()
        self.api.add_cluster(backups={"s3": S3, **backups})
        self.now = BEGIN
        self.taken: list[Backups] = []
        self.problem: BaseException | None = None
        self.stays: str | None = None
        self.registry = CollectorRegistry()
        self.reconciler = self.operator()

    def operator(self) -> BackupReconciler:
        """A new one, as after a restart."""
        self.registry = CollectorRegistry()
        metrics = BackupMetrics(self.registry)
        return BackupReconciler(self.api, self.take, metrics, lambda: self.now, lambda: self.now.timestamp())

    async def take(self, cluster: ClusterSpec, backups: Backups) -> BackupOutcome:
        self.taken.append(backups)
        self.now += timedelta(seconds=2)
        if self.problem is not None:
            raise self.problem
        number = len(self.taken)
        key = f"{backups.prefix}/default/{number}.kfsnap"
        header = SnapshotHeader(
            cluster_id="id", namespace="default", revision=number, created_ms=0, keys=number
        )
        stored = StoredSnapshot(
            key=key, created_ms=0, revision=number, cluster_id="c", size_bytes=100 + number
        )
        return BackupOutcome(taken=Taken(stored=stored, header=header, sha256="ab"), problem=self.stays)

    async def look(self) -> float:
        return await self.reconciler.reconcile(NAMESPACE, "c")

    async def later(self, **times: float) -> float:
        self.now += timedelta(**times)
        return await self.look()

    @property
    def backup(self) -> Any:
        return self.api.of_cluster.get("backup")

    @property
    def told(self) -> tuple[str, str]:
        """Status and reason of the condition."""
        found = find(self.api.of_cluster["conditions"], CONDITION)
        assert found is not None
        return found["status"], found["reason"]

    @property
    def message(self) -> str:
        found = find(self.api.of_cluster["conditions"], CONDITION)
        assert found is not None
        return str(found["message"])

    def metric(self, name: str) -> float | None:
        labels = {"namespace": NAMESPACE, "cluster": "c"}
        return self.registry.get_sample_value(f"kafscale_backup_{name}", labels)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_first_is_taken_at_once_and_the_next_when_it_is_due(scene: Scene) -> None:
    assert await scene.look() == AGAIN_SEC
    assert scene.backup == {
        "lastSuccessTime": "2026-11-22T02:10:00Z",
        "lastAttemptTime": "2026-11-22T02:10:00Z",
        "key": "kafscale-backups/default/1.kfsnap",
        "revision": 1,
        "sizeBytes": 101,
        "sha256": "ab",
    }
    assert scene.told == ("True", "SnapshotTaken")
    assert "1.kfsnap, taken at 2026-11-22T02:10:00Z" in scene.message
    assert scene.api.events == [("SnapshotTaken", scene.message)]
    assert await scene.later(minutes=18) == 118  # due at half past
    assert len(scene.taken) == 1
    await scene.later(seconds=118)
    assert (len(scene.taken), scene.backup["revision"]) == (2, 2)
    assert (scene.taken[0].keep, scene.taken[0].keep_for_ms) == (48, 7 * 86_400_000)


async def test_a_status_that_is_right_is_not_written_again(scene: Scene) -> None:
    for _ in range(5):
        await scene.later(seconds=1)
    assert (scene.api.applied, len(scene.api.events), len(scene.taken)) == (1, 1, 1)


async def test_restarted_operator_follows_the_status(scene: Scene) -> None:
    await scene.look()
    scene.reconciler = scene.operator()
    await scene.later(minutes=5)
    assert len(scene.taken) == 1
    assert scene.metric("last_success_timestamp_seconds") == BEGIN.timestamp()
    assert (scene.metric("size_bytes"), scene.metric("attempts_total")) == (101, 0)
    await scene.later(days=2)
    assert len(scene.taken) == 2


@pytest.mark.parametrize(
    "problem",
    [
        StoreUnavailableError("the bucket is away"),
        StartupError("etcd refuses the user"),
        KubeUnreachableError("no answer"),
        NothingToBackUpError("the metadata store holds no cluster"),
        OSError("no route"),
    ],
)
async def test_a_failure_is_reported_and_retried_later_each_time(scene: Scene, problem: Exception) -> None:
    await scene.look()
    scene.problem = problem
    assert await scene.later(minutes=20) == 15
    assert scene.told == ("False", "SnapshotFailed")
    assert str(problem) in scene.message and "1.kfsnap" in scene.message
    assert scene.api.warnings == ["SnapshotFailed"]
    assert scene.backup["lastSuccessTime"] == "2026-11-22T02:10:00Z"
    assert scene.backup["lastAttemptTime"] == "2026-11-22T02:30:02Z"
    assert await scene.later(seconds=15) == 30
    assert await scene.later(seconds=30) == 60
    assert len(scene.taken) == 4
    assert (scene.metric("attempts_total"), scene.metric("failures_total")) == (4, 3)
    assert scene.metric("last_success_timestamp_seconds") == BEGIN.timestamp()
    assert scene.metric("duration_seconds") == 2
    scene.problem = None
    await scene.later(seconds=60)
    assert scene.told == ("True", "SnapshotTaken")
    assert [reason for reason, _ in scene.api.events] == ["SnapshotTaken", "SnapshotFailed", "SnapshotTaken"]


async def test_being_woken_does_not_shorten_the_wait_after_a_failure(scene: Scene) -> None:
    """Its own status wakes it; else it would go round and round."""
    scene.problem = StoreUnavailableError("away")
    await scene.look()
    for _ in range(5):
        assert 0 < await scene.later(seconds=1) < 15
    assert (len(scene.taken), scene.api.applied) == (1, 1)


async def test_a_specification_that_was_corrected_is_tried_at_once(scene: Scene) -> None:
    scene.problem = StoreUnavailableError("no such bucket")
    await scene.look()
    scene.problem = None
    scene.api.remove(CLUSTER, "c")
    scene.api.add_cluster(backups={"s3": {"bucket": "corrected"}})
    found = scene.api._objects[CLUSTER.plural, "c"]
    found["metadata"]["generation"] = 2
    await scene.later(seconds=1)
    assert [one.bucket.bucket for one in scene.taken] == ["backups", "corrected"]
    assert scene.told == ("True", "SnapshotTaken")


async def test_a_cluster_that_has_not_started_is_waited_for(scene: Scene) -> None:
    scene.problem = NothingToBackUpError("the metadata store holds no cluster")
    for _ in range(4):
        assert await scene.later(seconds=15) == 15
    assert scene.told == ("False", "ClusterNotStarted")
    assert scene.api.warnings == []
    assert (scene.metric("failures_total"), scene.metric("last_success_timestamp_seconds")) == (0, 0)
    scene.problem = None
    await scene.later(seconds=15)
    assert scene.told == ("True", "SnapshotTaken")


async def test_old_snapshots_that_stay_are_reported(scene: Scene) -> None:
    scene.stays = "access denied"
    await scene.look()
    assert scene.told == ("True", "OldSnapshotsStay")
    assert "access denied" in scene.message
    assert scene.api.warnings == ["OldSnapshotsStay"]


async def test_none_is_taken_while_they_are_suspended() -> None:
    scene = Scene(suspend=True)
    assert await scene.later(days=3) == AGAIN_SEC
    assert scene.taken == []
    assert scene.told == ("False", "Suspended")
    assert scene.api.warnings == []


async def test_a_schedule_that_never_comes_is_reported() -> None:
    scene = Scene(schedule="0 0 31 2 *")
    await scene.look()
    assert scene.taken == []
    assert scene.told == ("False", "InvalidSchedule")
    assert "spec.backups.schedule '0 0 31 2 *'" in scene.message


async def test_nothing_is_reported_of_a_cluster_without_backups(scene: Scene) -> None:
    await scene.look()
    scene.api.remove(CLUSTER, "c")
    scene.api.add_cluster()
    await scene.look()
    assert scene.api.of_cluster == {}
    assert scene.metric("last_success_timestamp_seconds") is None
    assert scene.metric("attempts_total") is None
    applied = scene.api.applied
    await scene.look()
    assert (scene.api.applied, len(scene.taken)) == (applied, 1)


async def test_a_cluster_that_goes_is_left_alone(scene: Scene) -> None:
    scene.api.begin_deletion(CLUSTER, "c")
    await scene.look()
    scene.api.remove(CLUSTER, "c")
    await scene.look()
    assert (scene.taken, scene.api.applied) == ([], 0)


async def test_an_operator_that_leads_no_more_says_nothing(scene: Scene) -> None:
    scene.problem = LeadershipLostError("another one")
    with pytest.raises(LeadershipLostError):
        await scene.look()
    assert scene.api.applied == 0
