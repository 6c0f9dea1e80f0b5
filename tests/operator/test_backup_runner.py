"""The operator's snapshots, from a real etcd into a real bucket."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.errors import StoreError, StoreUnavailableError
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import Put
from kafscale.operator.backups.runner import BackupOutcome, BackupRunner
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.stores.metadata_access import SecretError, open_metadata
from kafscale.tools.backup.snapshots import NothingToBackUpError, Snapshots
from kafscale.tools.recovery import rebuild
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

pytestmark = pytest.mark.skipif(s3_server_missing() is not None, reason=str(s3_server_missing()))

NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


async def secrets(namespace: str, name: str) -> Mapping[str, bytes]:
    if (namespace, name) != ("ns", "keys"):
        raise SecretError(f"there is no Secret {name} in namespace {namespace}")
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY.encode(), "AWS_SECRET_ACCESS_KEY": SECRET_KEY.encode()}


class Scene:
    """A cluster with a prefix of its own, and what the operator does for it."""

    def __init__(self, etcd: EtcdServer, s3: S3Server, name: str) -> None:
        self._etcd = etcd
        self._s3 = s3
        self._name = name
        self.now_ms = NOW_MS
        self._runner = BackupRunner(secrets, lambda: self.now_ms)

    @property
    def bucket(self) -> dict[str, str]:
        """For the backups."""
        return {
            "bucket": self._s3.bucket,
            "endpoint": self._s3.endpoint,
            "credentialsSecret": "keys",
            "prefix": "safe/kafscale",
        }

    def cluster(self, **backups: Any) -> ClusterSpec:
        spec = {
            "brokers": {"replicas": 1},
            "s3": {"bucket": "records", "namespace": self._name},
            "etcd": {"endpoints": [self._etcd.endpoint], "prefix": f"/{self._name}"},
            "backups": {"s3": self.bucket, **backups},
        }
        return cluster_spec("c", "ns", spec)

    async def take(self, **backups: Any) -> BackupOutcome:
        cluster = self.cluster(**backups)
        assert cluster.backups is not None
        self.now_ms += 60_000
        return await self._runner.take(cluster, cluster.backups)

    def stored(self) -> list[str]:
        folder = self._s3.bucket_folder / "safe" / "kafscale" / self._name
        return sorted(path.name for path in folder.glob("*.kfsnap"))


@pytest.fixture
async def scene(etcd: EtcdServer, s3: S3Server, tmp_path: Path) -> Scene:
    return Scene(etcd, s3, tmp_path.name)


@pytest.fixture
async def store(scene: Scene) -> AsyncIterator[EtcdStore]:
    """The metadata store of the cluster, which has begun."""
    async with AsyncExitStack() as stack:
        opened = await open_metadata(scene.cluster(), secrets, stack)
        await ensure_cluster_id(opened)
        yield opened


async def test_snapshots_come_and_old_ones_go(scene: Scene, store: EtcdStore) -> None:
    first = await scene.take()
    assert (first.taken.header.keys, first.removed, first.problem) == (4, 0, None)
    await store.transact([], [Put("k", b"v")])
    second = await scene.take()
    assert second.taken.header.keys == 5
    assert second.taken.header.revision > first.taken.header.revision
    assert len(scene.stored()) == 2
    third = await scene.take(keep=1, keepFor="90s")
    assert (third.removed, len(scene.stored())) == (1, 2)


async def test_a_store_without_a_cluster_is_not_taken(scene: Scene) -> None:
    with pytest.raises(NothingToBackUpError):
        await scene.take()
    assert scene.stored() == []


async def test_undeletable_old_backups_are_reported_and_new_counts(
    scene: Scene, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Snapshots, cluster_id: str, *, keep: int, keep_for_ms: int) -> None:
        raise StoreUnavailableError("access denied")

    monkeypatch.setattr(rebuild, "FIRST_RETRY_SEC", 0.0)
    monkeypatch.setattr(Snapshots, "remove_expired", refuse)
    outcome = await scene.take()
    assert (outcome.removed, outcome.problem) == (0, "access denied")
    assert scene.stored() == [Path(outcome.taken.stored.key).name]


async def test_a_bucket_or_a_secret_that_is_not_there_fails(
    scene: Scene, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "FIRST_RETRY_SEC", 0.0)
    with pytest.raises(SecretError, match="no Secret other in namespace ns"):
        await scene.take(s3=scene.bucket | {"credentialsSecret": "other"})
    with pytest.raises(StoreError):
        await scene.take(s3=scene.bucket | {"bucket": "nowhere"})
