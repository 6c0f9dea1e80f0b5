"""An operator that is killed before or after any of its calls: the next one ends where it would have ended."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.metadata import keys
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.kube.kinds import TOPIC
from kafscale.operator.resource_metrics import TOPIC_RESOURCES, ResourceMetrics
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.stores.same_cluster_store import SameClusterStore
from kafscale.operator.topics.reconciler import TopicReconciler
from kafscale.settings.broker import Settings
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.kube_memory import NAMESPACE, KubeMemory
from tests.support.waiting import wait_until_async

T = TypeVar("T")

FIRST: dict[str, Any] = {"partitions": 2, "config": {"retention.ms": 1000, "segment.bytes": 2000000}}
SECOND: dict[str, Any] = {"partitions": 3, "config": {"retention.ms": 3000, "max.message.bytes": 777}}


class KilledError(Exception):
    """The operator's process is gone."""


@dataclass
class Fate:
    """Which call is the last. `after`: whether it is carried out."""

    calls_left: int
    after: bool
    has_struck: bool = False

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        if self.has_struck:
            raise KilledError
        self.calls_left -= 1
        if self.calls_left > 0:
            return await action()
        self.has_struck = True
        if self.after:
            await action()
        raise KilledError


class MortalStore(SameClusterStore):
    """The metadata store as an operator sees it that is to be killed."""

    def __init__(self, store: Any, revision: int, fate: Fate) -> None:
        super().__init__(store, revision)
        self._fate = fate

    async def get(self, key: str) -> Any:
        return await self._fate.call(lambda: super(MortalStore, self).get(key))

    async def transact(self, compares: Any, operations: Any) -> Any:
        return await self._fate.call(lambda: super(MortalStore, self).transact(compares, operations))


class MortalApi:
    """The Kubernetes API, the same."""

    def __init__(self, kube: KubeMemory, fate: Fate) -> None:
        self._kube = kube
        self._fate = fate

    async def find(self, *given: Any) -> Any:
        return await self._fate.call(lambda: self._kube.find(*given))

    async def list(self, *given: Any) -> Any:
        return await self._fate.call(lambda: self._kube.list(*given))

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Any:
        return await self._fate.call(lambda: self._kube.request(method, path, body=body))

    async def event(self, *given: Any, **named: Any) -> None:
        await self._fate.call(lambda: self._kube.event(*given, **named))


class Clusters:
    def __init__(self, live: LiveCluster) -> None:
        self._live = live

    @asynccontextmanager
    async def live(self, cluster: ClusterSpec) -> AsyncIterator[LiveCluster]:
        yield self._live


@dataclass
class World:
    kube: KubeMemory
    plane: ControlPlane
    live: LiveCluster
    revision: int

    def operator(self, fate: Fate | None = None) -> TopicReconciler:
        metrics = ResourceMetrics(CollectorRegistry(), TOPIC_RESOURCES)
        if fate is None:
            return TopicReconciler(self.kube, Clusters(self.live), lambda *_: None, metrics)
        mortal = replace(self.live, store=MortalStore(self.plane.store, self.revision, fate))
        return TopicReconciler(MortalApi(self.kube, fate), Clusters(mortal), lambda *_: None, metrics)

    async def outcome(self) -> dict[str, Any]:
        """Everything but what differs from run to run."""
        topics = [self.plane.view.topic(name, include_deleting=True) for name in ("t", "other")]
        told = {
            name: value
            for name, value in self.kube.status("t").items()
            if name not in ("conditions", "topicId")
        }
        return {
            "topics": [(each.partition_count, each.configs, each.state) if each else None for each in topics],
            "partitions": await self.plane.keys_under(keys.PARTITIONS),
            "told": told,
        }


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with control_plane() as plane:
        await ensure_cluster_id(plane.store)
        held = await plane.store.get(keys.CLUSTER)
        assert held is not None
        store = SameClusterStore(plane.store, held.mod_revision)
        live = LiveCluster(store=store, view=plane.view, settings=Settings())
        kube = KubeMemory()
        kube.add_cluster()
        kube.add_topic("t", **FIRST)
        yield World(kube=kube, plane=plane, live=live, revision=held.mod_revision)


async def prepare(scene: World, step: str) -> None:
    """Everything before the step, without any trouble."""
    if step == "make":
        return
    await scene.operator().reconcile(NAMESPACE, "t")
    if step == "change":
        scene.kube.change("t", **SECOND)
    else:
        scene.kube.begin_deletion(TOPIC, "t")


async def run(scene: World, step: str, operator: TopicReconciler) -> None:
    if step != "remove":
        await operator.reconcile(NAMESPACE, "t")
        return
    await wait_until_async(lambda: operator.finish(NAMESPACE, "t"), "the resource may go")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["make", "change", "remove"])
async def test_killed_at_any_call_of_a_step(step: str, after: bool) -> None:
    async with world() as untroubled:
        await prepare(untroubled, step)
        await run(untroubled, step, untroubled.operator())
        expected = await untroubled.outcome()
    number = 0
    while True:
        number += 1
        fate = Fate(number, after)
        async with world() as scene:
            await prepare(scene, step)
            try:
                await run(scene, step, scene.operator(fate))
            except KilledError:
                await run(scene, step, scene.operator())
            assert await scene.outcome() == expected, f"killed at call {number}"
        if not fate.has_struck:
            break
    assert number > {"make": 7, "change": 7, "remove": 6}[step]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_interrupted_config_is_reset_once_undeclared(after: bool) -> None:
    number, fate = 0, Fate(0, after)
    while fate.has_struck or not number:
        number += 1
        fate = Fate(number, after)
        async with world() as scene:
            await run(scene, "make", scene.operator())
            scene.kube.change("t", config={"max.message.bytes": 777})
            with contextlib.suppress(KilledError):
                await run(scene, "change", scene.operator(fate))
            scene.kube.change("t", config=None)
            await run(scene, "change", scene.operator())
            topic = scene.plane.view.topic("t")
            assert topic is not None
            assert topic.configs == {}, f"killed at call {number}"
    assert number > 7


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_topic_that_was_being_made_goes_with_its_resource(after: bool) -> None:
    number, fate = 0, Fate(0, after)
    while fate.has_struck or not number:
        number += 1
        fate = Fate(number, after)
        async with world() as scene:
            with contextlib.suppress(KilledError):
                await run(scene, "make", scene.operator(fate))
            scene.kube.begin_deletion(TOPIC, "t")
            await run(scene, "remove", scene.operator())
            assert await scene.plane.keys_under(keys.TOPICS) == [], f"killed at call {number}"
    assert number > 7
