"""Deletions by the collector of journals on real drivers, and what one damaged entry keeps it from."""

import asyncio
from collections.abc import Sequence

import pytest

from kafscale.formats.journal_keys import entry_key, parse_entry_key
from kafscale.log.journal import collector
from kafscale.metadata import keys
from kafscale.ops.item_failures import BackgroundWork
from tests.log.brokers import NAMESPACE, PROGRESS_SEC, BrokerParts, Cluster, cluster_scenario

TOPIC = "events"
ENTRIES = 5
GRACE_SEC = 60


class Scene:
    """A broker, and the journal of another one that has stopped: entries that no record needs, and a fence."""

    def __init__(self, cluster: Cluster, broker: BrokerParts, journal_id: str) -> None:
        self.cluster, self.broker, self.journal_id = cluster, broker, journal_id

    def damage(self, sequence: int) -> None:
        """Nobody can read the head of this entry from now on."""
        key = entry_key(NAMESPACE, self.journal_id, sequence)
        self.cluster.objects.lie(key, lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:])

    async def look(self) -> int:
        return await self.broker.parts._collector.look()

    async def look_twice(self) -> int:
        """At once, and when the grace is over."""
        deleted = await self.look()
        await asyncio.sleep(GRACE_SEC)
        return deleted + await self.look()

    async def left(self) -> Sequence[int]:
        """Objects left below the keys of the journal."""
        parsed = [parse_entry_key(key) for key in await self.cluster.objects.keys("*.entry")]
        return [one.sequence for one in parsed if one is not None and one.journal_id == self.journal_id]

    async def is_known(self) -> bool:
        return await self.cluster.metadata.get(keys.journal(self.journal_id)) is not None

    @property
    def failures(self) -> int:
        return self.broker.metrics.background_failures[BackgroundWork.JOURNALS]


async def scene_with_a_journal(cluster: Cluster) -> Scene:
    (stopped,) = await cluster.start(0)
    await cluster.create_topic(TOPIC)
    for number in range(ENTRIES):
        await stopped.produce(TOPIC, 0, b"%d" % number)
    await stopped.seal(TOPIC)
    await asyncio.sleep(PROGRESS_SEC)
    journal_id = stopped.parts.journals.current.journal_id
    await stopped.stop()
    (broker,) = await cluster.start(1)
    return Scene(cluster, broker, journal_id)


@cluster_scenario(garbage_grace_sec=GRACE_SEC)
async def test_entries_that_nothing_needs_are_deleted(cluster: Cluster) -> None:
    scene = await scene_with_a_journal(cluster)
    assert await scene.look_twice() == ENTRIES - 1
    newest, *fences = await scene.left()
    assert newest == ENTRIES - 1, "it declares the others to be committed"
    assert fences


@cluster_scenario(garbage_grace_sec=GRACE_SEC)
async def test_a_damaged_entry_stays_and_the_others_are_deleted(cluster: Cluster) -> None:
    scene = await scene_with_a_journal(cluster)
    scene.damage(1)
    assert await scene.look_twice() == ENTRIES - 2
    assert (await scene.left())[:2] == [1, ENTRIES - 1]


@cluster_scenario(garbage_grace_sec=GRACE_SEC)
async def test_a_damaged_entry_is_reported_once(cluster: Cluster) -> None:
    scene = await scene_with_a_journal(cluster)
    scene.damage(1)
    for _ in range(3):
        await scene.look_twice()
    assert scene.failures == 1


@cluster_scenario(garbage_grace_sec=GRACE_SEC)
async def test_what_a_damaged_entry_declares_is_not_known(cluster: Cluster) -> None:
    """Of those that can be read, the newest says that all but itself and the damaged one are committed."""
    scene = await scene_with_a_journal(cluster)
    scene.damage(ENTRIES - 1)
    assert await scene.look_twice() == ENTRIES - 2
    assert (await scene.left())[:2] == [ENTRIES - 2, ENTRIES - 1]


@pytest.mark.parametrize("damaged", [None, 1])
def test_a_journal_with_a_damaged_entry_is_not_forgotten(
    damaged: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it goes; its fence and its record say if the entry counts."""

    @cluster_scenario(garbage_grace_sec=GRACE_SEC)
    async def scenario(cluster: Cluster) -> None:
        scene = await scene_with_a_journal(cluster)
        if damaged is not None:
            scene.damage(damaged)
        await scene.look()
        monkeypatch.setattr(collector, "ENDED_KEPT_MS", 0)
        await scene.look_twice()
        left = await scene.left()
        if damaged is None:
            assert left == [] and not await scene.is_known()
        else:
            assert left == [damaged, ENTRIES] and await scene.is_known()
            assert await scene.look_twice() == 0

    scenario()
