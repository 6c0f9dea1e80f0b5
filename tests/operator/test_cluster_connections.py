"""The operator's connections to metadata stores: real etcd, with Secrets that come, change and lack something."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import ABSENT, Compare, Delete, Put
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.errors import LeadershipLostError
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.stores.cluster_connections import ClusterConnections
from kafscale.operator.stores.metadata_access import SecretError
from kafscale.operator.stores.same_cluster_store import OtherClusterError, SameClusterStore
from tests.metadata.etcd_stores import etcd_store
from tests.support.etcd_server import SHARED, EtcdServer, TlsFiles, etcd_server, make_tls
from tests.support.waiting import PATIENCE_SEC, wait_until_async

USER, PASSWORD = "kafscale", "the broker's password"
TOPIC = TopicRecord(name="t", topic_id=uuid.UUID(int=1), partition_count=1)


@dataclass
class Secrets:
    """As the API has them; `reads`: how often they were looked at."""

    held: dict[str, Mapping[str, str]] = field(default_factory=dict)
    reads: int = 0

    async def read(self, namespace: str, name: str) -> Mapping[str, bytes]:
        assert namespace == "ns"
        self.reads += 1
        if name not in self.held:
            raise SecretError(f"there is no Secret {name} in namespace {namespace}")
        return {key: text.encode() for key, text in self.held[name].items()}


@dataclass
class Told:
    """Calls of listeners."""

    topics: list[str | None] = field(default_factory=list)

    def __call__(self, namespace: str, name: str, topic: str | None) -> None:
        assert (namespace, name) == ("ns", "c")
        self.topics.append(topic)


@dataclass
class Scene:
    connections: ClusterConnections
    secrets: Secrets
    told: Told
    now: float = 0.0
    leads: bool = True

    def check(self, what: str) -> None:
        if not self.leads:
            raise LeadershipLostError(what)

    async def is_live(self, cluster: ClusterSpec) -> bool:
        try:
            async with self.connections.live(cluster):
                return True
        except NotReadyError:
            return False

    async def reason(self, cluster: ClusterSpec) -> str | None:
        try:
            async with self.connections.live(cluster):
                return None
        except NotReadyError as problem:
            return problem.reason

    async def wait_reason(self, cluster: ClusterSpec, reason: str | None) -> None:
        async def is_there() -> bool:
            return await self.reason(cluster) == reason

        await wait_until_async(is_there, f"the reason is {reason}", PATIENCE_SEC)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    secrets, told = Secrets(), Told()
    found = Scene(
        ClusterConnections(secrets.read, lambda: found.now, lambda what: found.check(what)), secrets, told
    )
    found.connections.listen(told)
    before = asyncio.all_tasks()
    yield found
    await found.connections.close()
    assert {task for task in asyncio.all_tasks() - before if "connection" in task.get_name()} == set()


def cluster(endpoint: str, **etcd: Any) -> ClusterSpec:
    spec = {
        "brokers": {"replicas": 1},
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": [endpoint], "prefix": f"/tests/{uuid.uuid4().hex}", **etcd},
    }
    return cluster_spec("c", "ns", spec)


@pytest.fixture
def plain() -> ClusterSpec:
    return cluster(SHARED.endpoint())


@pytest.fixture
async def beside(plain: ClusterSpec) -> AsyncIterator[EtcdStore]:
    """The record that a broker writes."""
    async for store in opened(plain):
        yield store


async def opened(spec: ClusterSpec) -> AsyncIterator[EtcdStore]:
    assert spec.etcd.prefix is not None
    async with etcd_store(*spec.etcd.endpoints, prefix=spec.etcd.prefix) as store:
        yield store


async def test_a_cluster_is_ready_once_it_has_begun(
    scene: Scene, plain: ClusterSpec, beside: EtcdStore
) -> None:
    assert await scene.reason(plain) == "ClusterNotStarted"
    scene.told.topics.clear()
    cluster_id = await ensure_cluster_id(beside)
    await scene.wait_reason(plain, None)
    assert None in scene.told.topics
    async with scene.connections.live(plain) as live:
        assert live.view.cluster_id == cluster_id


async def test_a_topic_that_changes_is_reported(scene: Scene, plain: ClusterSpec, beside: EtcdStore) -> None:
    await ensure_cluster_id(beside)
    await scene.wait_reason(plain, None)
    await beside.transact([], [Put(keys.topic("t"), encode_topic_record(TOPIC))])
    await wait_until_async(lambda: _holds(scene.told.topics, "t"), "it is told")
    scene.told.topics.clear()
    await beside.transact([], [Delete(keys.topic("t"))])
    await wait_until_async(lambda: _holds(scene.told.topics, "t"), "its end is told")


async def _holds(told: list[str | None], topic: str) -> bool:
    return topic in told


async def test_emptied_and_refilled_store_is_another_cluster(
    scene: Scene, plain: ClusterSpec, beside: EtcdStore
) -> None:
    await ensure_cluster_id(beside)
    await beside.transact([], [Put(keys.topic("t"), encode_topic_record(TOPIC))])
    await scene.wait_reason(plain, None)
    async with scene.connections.live(plain) as before:
        await beside.transact([], [Delete(keys.CLUSTER), Delete(keys.topic("t"))])
        with pytest.raises(OtherClusterError):
            await before.store.transact([], [Put(keys.topic("u"), b"")])
        await scene.wait_reason(plain, "ClusterNotStarted")
        await ensure_cluster_id(beside)
        await scene.wait_reason(plain, None)
        with pytest.raises(OtherClusterError):
            await before.store.transact([], [Put(keys.topic("u"), b"")])
    async with scene.connections.live(plain) as after:
        assert after.view.topic("t") is None
        assert (await after.store.transact([], [Put(keys.topic("u"), b"")])).succeeded


async def test_the_store_can_be_had_before_there_is_a_cluster(
    scene: Scene, plain: ClusterSpec, beside: EtcdStore
) -> None:
    async with scene.connections.store(plain) as store:
        assert (await store.transact([], [Put("k", b"v")])).succeeded
    held = await beside.get("k")
    assert held is not None and held.value == b"v"


async def test_one_connection_is_shared_until_the_spec_changes(
    scene: Scene, plain: ClusterSpec, beside: EtcdStore
) -> None:
    await ensure_cluster_id(beside)
    await scene.wait_reason(plain, None)
    async with scene.connections.live(plain) as first:
        async with scene.connections.live(plain) as second:
            assert second is first
        other = cluster(SHARED.endpoint())
        await scene.wait_reason(other, "ClusterNotStarted")
        assert await first.store.get(keys.CLUSTER) is not None  # not closed under its user


async def test_an_operator_that_leads_no_more_writes_nothing(
    scene: Scene, plain: ClusterSpec, beside: EtcdStore
) -> None:
    await ensure_cluster_id(beside)
    await scene.wait_reason(plain, None)
    async with scene.connections.live(plain) as live:
        scene.leads = False
        with pytest.raises(LeadershipLostError):
            await live.store.transact([], [Put("k", b"v")])
    assert await beside.get("k") is None


async def test_what_is_asked_again_after_the_end_finds_nothing_ready(
    scene: Scene, plain: ClusterSpec
) -> None:
    await scene.reason(plain)
    await scene.connections.forget("ns", "c")
    assert await scene.reason(plain) == "ClusterNotStarted"  # connected to again
    await scene.connections.close()
    assert await scene.reason(plain) == "Connecting"


async def test_an_etcd_that_is_away_is_said_to_be(scene: Scene, tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        spec = cluster(server.endpoint)
    await scene.wait_reason(spec, "MetadataStoreUnreachable")
    server.start()
    try:
        await scene.wait_reason(spec, "ClusterNotStarted")
    finally:
        server.close()


class TestWithSecrets:
    @pytest.fixture
    def guarded(self, tmp_path: Path) -> Iterator[EtcdServer]:
        with etcd_server(tmp_path) as server:
            server.add_user(USER, PASSWORD, "/tests/")
            yield server

    async def test_the_user_and_the_password_are_those_of_the_secret(
        self, scene: Scene, guarded: EtcdServer
    ) -> None:
        spec = cluster(guarded.endpoint, credentialsSecret="etcd-user")
        with pytest.raises(SecretError, match="no Secret etcd-user in namespace ns"):
            await scene.reason(spec)
        scene.secrets.held["etcd-user"] = {"username": USER}
        with pytest.raises(SecretError, match="etcd-user in namespace ns has no password"):
            await scene.reason(spec)
        scene.secrets.held["etcd-user"] = {"username": USER, "password": "another"}
        assert await scene.reason(spec) == "MetadataStoreRefuses"
        scene.secrets.held["etcd-user"] = {"username": USER, "password": PASSWORD}
        scene.now += 60
        await scene.wait_reason(spec, "ClusterNotStarted")

    async def test_a_password_that_is_renewed_is_taken_up(self, scene: Scene, guarded: EtcdServer) -> None:
        spec = cluster(guarded.endpoint, credentialsSecret="etcd-user")
        scene.secrets.held["etcd-user"] = {"username": USER, "password": PASSWORD}
        assert await scene.reason(spec) == "ClusterNotStarted"
        guarded.set_password(USER, "renewed")
        scene.secrets.held["etcd-user"] = {"username": USER, "password": "renewed"}
        scene.now += 60
        async with scene.connections.store(spec) as store:
            assert (await store.transact([], [Put("k", b"v")])).succeeded

    async def test_secrets_are_not_read_for_every_question(self, scene: Scene, guarded: EtcdServer) -> None:
        spec = cluster(guarded.endpoint, credentialsSecret="etcd-user")
        scene.secrets.held["etcd-user"] = {"username": USER, "password": PASSWORD}
        for _ in range(5):
            await scene.reason(spec)
        assert scene.secrets.reads == 1

    async def test_certificates_are_those_of_the_secret(self, scene: Scene, tmp_path: Path) -> None:
        files = make_tls(tmp_path / "tls")
        with etcd_server(tmp_path, tls=files) as server:
            spec = cluster(server.endpoint, tlsSecret="etcd-tls", tlsClientCertificate=True)
            scene.secrets.held["etcd-tls"] = _texts(files)
            await scene.wait_reason(spec, "ClusterNotStarted")
            without = cluster(server.endpoint, tlsSecret="etcd-tls")
            assert await scene.reason(without) == "MetadataStoreRefuses"

    async def test_nothing_secret_is_left_on_the_disk(
        self, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        scene.secrets.held["etcd-tls"] = {"ca.crt": "not used: there is no TLS"}
        await scene.reason(cluster(SHARED.endpoint(), tlsSecret="etcd-tls"))
        assert _kept_in(tmp_path) == {0o700, 0o600}
        await scene.connections.close()
        assert _kept_in(tmp_path) == set()


def _kept_in(folder: Path) -> set[int]:
    """The rights of everything in folders for keys, and of these."""
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if "kafscale-tls-" in str(path)}


def _texts(files: TlsFiles) -> dict[str, str]:
    return {
        "ca.crt": files.ca.read_text(),
        "tls.crt": files.client_cert.read_text(),
        "tls.key": files.client_key.read_text(),
    }


async def test_writes_of_the_same_cluster_say_what_they_found(beside: EtcdStore) -> None:
    await ensure_cluster_id(beside)
    held = await beside.get(keys.CLUSTER)
    assert held is not None
    store = SameClusterStore(beside, held.mod_revision)
    written = await store.transact([Compare("k", ABSENT)], [Put("k", b"1")])
    assert written.succeeded
    refused = await store.transact([Compare("k", ABSENT), Compare("l", ABSENT)], [Put("k", b"2")])
    assert not refused.succeeded
    first, second = refused.found
    assert first is not None and first.mod_revision == written.revision and second is None
    most = [Put(f"many/{number}", b"") for number in range(store.max_operations)]
    assert (await store.transact([Compare(each.key, ABSENT) for each in most], most)).succeeded
