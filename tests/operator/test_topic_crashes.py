"""An operator that is killed before or after any of its calls: the next one ends where it would have ended."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.metadata import keys
from kafscale.operator.kube.kinds import TOPIC
from kafscale.operator.resource_metrics import TOPIC_RESOURCES, ResourceMetrics
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.topics.reconciler import TopicReconciler
from tests.operator.mortal_operator import Fate, KilledError, MortalApi, MortalStore
from tests.operator.one_cluster import OneCluster, cluster_revision, live_cluster
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.kube_memory import NAMESPACE, KubeMemory
from tests.support.waiting import wait_until_async

FIRST: dict[str, Any] = {"partitions": 2, "config": {"retention.ms": 1000, "segment.bytes": 2000000}}
SECOND: dict[str, Any] = {"partitions": 3, "config": {"retention.ms": 3000, "max.message.bytes": 777}}


@dataclass
class World:
    kube: KubeMemory
    plane: ControlPlane
    live: LiveCluster
    revision: int

    def operator(self, fate: Fate | None = None) -> TopicReconciler:
        metrics = ResourceMetrics(CollectorRegistry(), TOPIC_RESOURCES)
        if fate is None:
            return TopicReconciler(self.kube, OneCluster(self.live), lambda *_: None, metrics)
        mortal = replace(self.live, store=MortalStore(self.plane.store, self.revision, fate))
        return TopicReconciler(MortalApi(self.kube, fate), OneCluster(mortal), lambda *_: None, metrics)

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
        live = await live_cluster(plane.store, plane.view)
        revision = await cluster_revision(plane.store)
        kube = KubeMemory()
        kube.add_cluster()
        kube.add_topic("t", **FIRST)
        yield World(kube=kube, plane=plane, live=live, revision=revision)


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
