"""The contract of exporters of topics in any store: one at a time, and none that is stale writes anything."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafscale.broker import stores
from kafscale.cluster.export_hold import ExportHold
from kafscale.cluster.exports import (
    ExportHeldError,
    ExportLeaseLostError,
    TopicExports,
    read_exports,
    read_holder,
)
from kafscale.formats.export_records import ExportProgress, ExportRecord, ExportState
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.settings.broker import Settings
from tests.contract.export_backends import EXPORT_BACKENDS

TTL_SEC = 60
NOW_MS = 1_700_000_000_000

PROGRESS = ExportProgress(
    topic="events",
    table="local.db.events",
    positions={0: 10, 2: 0},
    log_end_offsets={0: 12, 2: 7},
    rows=9,
    dead_letters=1,
    updated_ms=NOW_MS + 5,
    complete_ms=NOW_MS + 3,
)


@dataclass
class Clock:
    """Seconds as the test wants them."""

    now_sec: float = 100.0

    def __call__(self) -> float:
        return self.now_sec


@pytest.fixture(params=sorted(EXPORT_BACKENDS))
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return EXPORT_BACKENDS[request.param](tmp_path)


@contextlib.asynccontextmanager
async def store_of(settings: Settings, topic: str = "events") -> AsyncIterator[MetadataStore]:
    """As an exporter of the topic opens it."""
    async with contextlib.AsyncExitStack() as stack:
        yield await stores.open_export_store(settings, topic, stack)


async def hold(
    store: MetadataStore, topic: str = "events", holder: str = "host/1", clock: Clock | None = None
) -> ExportHold:
    return await ExportHold.acquire(
        store, topic, holder, TTL_SEC, now_ms=lambda: NOW_MS, clock=clock or Clock()
    )


async def exports_of(settings: Settings) -> list[TopicExports]:
    """The record that others see."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[TopicExports] = []
        for reader in await stores.open_exports_for_reading(settings, stack):
            found += await read_exports(reader)
        return found


async def end_lease(store: MetadataStore, topic: str = "events") -> None:
    """As when the holder was not heard of for too long."""
    found = await store.get(keys.export_holder(topic))
    assert found is not None
    await store.revoke_lease(found.lease)


async def test_nothing_is_seen_where_nothing_was_exported(settings: Settings) -> None:
    assert await exports_of(settings) == []


async def test_each_holder_has_an_epoch_of_its_own(settings: Settings) -> None:
    for epoch in (1, 2, 3):
        async with store_of(settings) as store:
            held = await hold(store, holder=f"host/{epoch}")
            assert held.epoch == epoch
            held.check()
            await held.confirm()
            record = ExportRecord(epoch=epoch, holder=f"host/{epoch}", acquired_ms=NOW_MS)
            assert await read_holder(store, "events") == record
            assert await exports_of(settings) == [TopicExports(topic="events", last=record, holder=record)]
            await held.release()
            assert await read_holder(store, "events") is None
        assert await exports_of(settings) == [TopicExports(topic="events", last=record)]


async def test_a_topic_has_one_holder(settings: Settings) -> None:
    async with store_of(settings) as store:
        held = await hold(store, holder="host/1")
        with pytest.raises(
            ExportHeldError, match=r"'events' is being exported by host/1 since 2023-11-14T22"
        ):
            async with store_of(settings) as other:
                await hold(other, holder="host/2")
        with pytest.raises(ExportHeldError) as caught:
            await hold(store, holder="host/1")
        assert (caught.value.topic, caught.value.holder, caught.value.since_ms) == (
            "events",
            "host/1",
            NOW_MS,
        )
        await held.confirm()
        async with store_of(settings, "another") as other:
            assert (await hold(other, "another")).epoch == 1
            assert [one.topic for one in await exports_of(settings)] == ["another", "events"]
        await held.release()
        assert (await hold(store)).epoch == 2


async def test_a_holder_that_was_cut_off_is_followed(settings: Settings) -> None:
    async with store_of(settings) as store:
        await hold(store)
        await end_lease(store)
    async with store_of(settings) as store:
        assert (await hold(store)).epoch == 2


async def test_progress_is_there_for_all_to_see(settings: Settings) -> None:
    other_table = replace(PROGRESS, table="local.db.ev/ents 2", rows=0, positions={}, log_end_offsets={})
    last = replace(PROGRESS, rows=11, state=ExportState.FAILED, error="no such table: 'x'\n\udc80 ü")
    async with store_of(settings) as store:
        held = await hold(store)
        await held.record(PROGRESS)
        (seen,) = await exports_of(settings)
        assert seen.progress == (PROGRESS,)
        await held.record(other_table)
        await held.record(last)
        await held.release()
    async with store_of(settings) as store:
        await (await hold(store)).record(other_table)
        stored = replace(last, error="no such table: 'x'\n? ü")
        assert [one.progress for one in await exports_of(settings)] == [(other_table, stored)]


async def test_ten_thousand_partitions_fit(settings: Settings) -> None:
    offsets = {partition: 2**63 - 1 - partition for partition in range(10_000)}
    large = replace(
        PROGRESS, positions=offsets, log_end_offsets=offsets, error="x" * 100_000, state=ExportState.FAILED
    )
    async with store_of(settings) as store:
        await (await hold(store)).record(large)
        (seen,) = await exports_of(settings)
        assert seen.progress[0].positions == offsets
        assert seen.progress[0].log_end_offsets == offsets
        assert 1000 < len(seen.progress[0].error) < 10_000


async def test_who_is_cut_off_writes_nothing_and_stays_cut_off(settings: Settings) -> None:
    async with store_of(settings) as store:
        held = await hold(store)
        await held.record(PROGRESS)
        await end_lease(store)
        held.check()
        with pytest.raises(ExportLeaseLostError, match=r"'events'.*its lease has ended"):
            await held.record(replace(PROGRESS, rows=99))
        for lost in (held.confirm, held.renew, lambda: held.record(PROGRESS)):
            with pytest.raises(ExportLeaseLostError):
                await lost()
        with pytest.raises(ExportLeaseLostError):
            held.check()
        await held.release()
        assert [one.progress for one in await exports_of(settings)] == [(PROGRESS,)]


async def test_who_was_followed_writes_nothing(settings: Settings) -> None:
    async with store_of(settings) as store:
        stale = await hold(store, holder="stale")
        await end_lease(store)
        fresh = await hold(store, holder="fresh")
        await fresh.record(PROGRESS)
        with pytest.raises(ExportLeaseLostError, match="fresh has taken hold of it in epoch 2"):
            await stale.record(replace(PROGRESS, rows=99))
        await stale.release()
        await fresh.confirm()
        with pytest.raises(ExportLeaseLostError):
            await stale.confirm()
        assert [one.progress for one in await exports_of(settings)] == [(PROGRESS,)]


async def test_a_hold_is_lost_when_it_could_not_be_renewed_in_time(settings: Settings) -> None:
    clock = Clock()
    async with store_of(settings) as store:
        held = await hold(store, clock=clock)
        clock.now_sec += TTL_SEC - 1
        held.check()
        await held.renew()
        clock.now_sec += TTL_SEC - 1
        held.check()
        clock.now_sec += 1
        with pytest.raises(ExportLeaseLostError, match="could not be renewed for 60 s"):
            held.check()
        with pytest.raises(ExportLeaseLostError):
            await held.renew()
        clock.now_sec = 0
        with pytest.raises(ExportLeaseLostError):
            held.check()


async def test_progress_of_another_topic_is_a_mistake(settings: Settings) -> None:
    async with store_of(settings) as store:
        held = await hold(store)
        with pytest.raises(ValueError, match="'events' cannot record progress of 'another'"):
            await held.record(replace(PROGRESS, topic="another"))
        with pytest.raises(ValueError, match="they must be the same ones"):
            await held.record(replace(PROGRESS, positions={0: 1}))


async def test_topics_with_the_longest_names(settings: Settings) -> None:
    topic = "t" * 249
    async with store_of(settings, topic) as store:
        assert (await hold(store, topic)).epoch == 1
        assert [one.topic for one in await exports_of(settings)] == [topic]
