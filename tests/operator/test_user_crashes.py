"""An operator that is killed before or after any of its calls: the next one ends where it would have ended."""

from dataclasses import replace
from typing import Any

import pytest

from kafscale.operator.kube.kinds import USER
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.users.reconciler import UserReconciler
from tests.operator.mortal_operator import Fate, KilledError, MortalApi, MortalStore
from tests.operator.one_cluster import cluster_revision
from tests.operator.user_scene import Scene, acls, scram, user_scene
from tests.support.kube_memory import NAMESPACE

FIRST: dict[str, Any] = {
    "authentication": scram("scram-sha-256"),
    "authorization": acls(("a", "Read", "allow"), ("b", "Write", "deny")),
    "quotas": {"producerByteRate": 5},
}
SECOND: dict[str, Any] = {
    "authentication": scram(),
    "authorization": acls(("a", "Write", "allow")),
    "quotas": None,
}


async def mortal(scene: Scene, fate: Fate) -> UserReconciler:
    revision = await cluster_revision(scene.store)
    live: LiveCluster = replace(scene.live, store=MortalStore(scene.store, revision, fate))
    return scene.operator(MortalApi(scene.kube, fate), live)


async def outcome(scene: Scene) -> dict[str, Any]:
    """Everything but what differs from run to run, and whether brokers take the Secret's password."""
    told = {name: value for name, value in scene.kube.user_status("u").items() if name not in ("conditions",)}
    credentials = await scene.credentials()
    is_accepted = [await scene.accepts(scene.kube.password("u"), each) for each in credentials]
    return {
        "credentials": sorted(credentials),
        "accepted": is_accepted,
        "rules": await scene.rules(),
        "quotas": await scene.quotas(),
        "told": told,
    }


async def prepare(scene: Scene, step: str) -> None:
    scene.kube.add_user("u", **FIRST)
    if step == "make":
        return
    await scene.look()
    if step == "change":
        scene.kube.change_user("u", **SECOND)
    else:
        scene.kube.begin_deletion(USER, "u")


async def run(step: str, operator: UserReconciler) -> None:
    if step == "remove":
        assert await operator.finish(NAMESPACE, "u")
    else:
        await operator.reconcile(NAMESPACE, "u")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["make", "change", "remove"])
async def test_kill_at_any_call_ends_in_the_same(step: str, after: bool) -> None:
    async with user_scene() as untroubled:
        await prepare(untroubled, step)
        await run(step, untroubled.operator())
        expected = await outcome(untroubled)
    assert all(expected["accepted"])
    number = 0
    while True:
        number += 1
        fate = Fate(number, after)
        async with user_scene() as scene:
            await prepare(scene, step)
            try:
                await run(step, await mortal(scene, fate))
            except KilledError:
                await run(step, scene.operator())
            assert await outcome(scene) == expected, f"killed at call {number}"
        if not fate.has_struck:
            break
    assert number > {"make": 14, "change": 11, "remove": 8}[step]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_half_made_user_goes_with_its_resource(after: bool) -> None:
    number, fate = 0, Fate(0, after)
    while fate.has_struck or not number:
        number += 1
        fate = Fate(number, after)
        async with user_scene() as scene:
            scene.kube.add_user("u", **FIRST)
            try:
                await run("make", await mortal(scene, fate))
            except KilledError:
                scene.kube.begin_deletion(USER, "u")
                await run("remove", scene.operator())
                rest = (await scene.credentials(), await scene.rules(), await scene.quotas())
                assert rest == ({}, set(), {}), f"killed at call {number}"
    assert number > 14
