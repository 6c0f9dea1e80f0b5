"""A broker that is cut off from the metadata store alone sends consumers on that would wait there for nothing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from kafscale.metadata.memory_store import MemoryStore
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.stale_view import LEAST_WAIT_MS
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import (
    Client,
    ConnectionEndedError,
    InProcessBroker,
    in_process_broker,
    until,
)
from tests.support.on_uvloop import on_uvloop
from tests.support.outages import CutOffMetadataStore, Outage
from tests.support.waiting import PATIENCE_SEC

LEASE_SEC = 1
FOREVER_MS = 3_600_000
PARTITIONS = 2


@dataclass
class Scene:
    """`broker` leads the partition `index`, which has one record, as it believes. `other`: if there is another."""

    broker: InProcessBroker
    other: InProcessBroker
    store: CutOffMetadataStore
    index: int = 0

    async def cut_off(self) -> None:
        """Until the store has been silent for a lease's time."""
        await self.hear_once_more()
        self.store.switch.go_away(Outage.FAILS)
        contact = self.broker.process.basics.metadata_contact
        await until(lambda: contact.is_lost, "the store was silent for a lease's time")

    async def hear_once_more(self) -> None:
        """Something that is asked after this: what is connected by now was so before any silence."""
        contact = self.broker.process.basics.metadata_contact
        now_ms = contact.now_ms()
        await until(lambda: contact.now_ms() - contact.silent_ms > now_ms, "the store answers")

    def leads_for_sure(self) -> bool:
        """True if its journal had not ended less than a lease's time ago."""
        unended_ms = self.broker.process.serving.log_parts.journals.unended_ms
        return unended_ms is not None and self.broker.process.basics.metadata_contact.is_recent(unended_ms)

    async def fetch(self, client: Client, offset: int, **limits: int) -> tuple[int, int]:
        """The error, and how many records."""
        part = (await client.fetch("topic", {self.index: offset}, **{"max_wait_ms": 50, **limits}))[
            self.index
        ]
        return part.error_code, len(wire.records_in(part.records)) if part.records else 0


@contextlib.asynccontextmanager
async def scene(brokers: int = 2, *, all_cut_off: bool = False) -> AsyncIterator[Scene]:
    metadata, objects = MemoryStore(), ControlledStore()
    way = CutOffMetadataStore(metadata)
    async with contextlib.AsyncExitStack() as stack:
        cut = other = await stack.enter_async_context(
            in_process_broker(metadata=way, objects=objects, lease_ttl_sec=LEASE_SEC)
        )
        stack.callback(way.switch.come_back)
        await cut.create_topic(partitions=PARTITIONS)
        if brokers == PARTITIONS:
            store = way if all_cut_off else metadata
            beside = in_process_broker(metadata=store, objects=objects, broker_id=1)
            other = await stack.enter_async_context(beside)
        logs = cut.process.serving.logs
        await until(lambda: logs.partition_count == PARTITIONS // brokers, "it leads its share")
        index = next(logs.partitions()).id.index
        async with cut.connect() as client:
            assert (await client.produce("topic", index, wire.batch([b"old"]))).base_offset == 0
        yield Scene(cut, other, way, index)


@on_uvloop
async def test_empty_poll_of_a_stale_view_is_sent_away() -> None:
    async with scene() as at, at.broker.connect() as old, at.broker.connect() as reading:
        assert await at.fetch(old, 1) == (ErrorCode.NONE, 0)
        await at.cut_off()
        assert await at.fetch(reading, 0) == (ErrorCode.NONE, 1), "what is published stays readable"
        with pytest.raises(ConnectionEndedError):
            await at.fetch(old, 1)
        async with at.broker.connect() as again:
            for _ in range(2):
                assert await at.fetch(again, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
            assert await at.fetch(again, 0) == (ErrorCode.NONE, 1)


@on_uvloop
async def test_poll_that_waits_for_long_hears_when_the_view_is_stale() -> None:
    async with scene() as at, at.broker.connect() as client:
        await client.send_fetch("topic", {at.index: 1}, max_wait_ms=FOREVER_MS)
        await until(lambda: at.broker.partition("topic", at.index).has_listeners, "it waits")
        await at.cut_off()
        assert await client.closed_by_peer()


@on_uvloop
@pytest.mark.parametrize("limits", [{"max_wait_ms": 0}, {"max_wait_ms": 50, "min_bytes": 0}])
async def test_refusal_for_a_stale_view_takes_its_time(limits: dict[str, int]) -> None:
    async with scene() as at:
        await at.cut_off()
        async with at.broker.connect() as client:
            took_ms = []
            for _ in range(3):
                began = time.monotonic()
                assert await at.fetch(client, 1, **limits) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
                took_ms.append((time.monotonic() - began) * 1000)
            # Once in an outage all waits end early, so that the long ones do.
            assert sorted(took_ms)[1] >= LEAST_WAIT_MS


@on_uvloop
async def test_only_broker_lets_its_consumers_wait() -> None:
    """There is none to send them to."""
    async with scene(brokers=1) as at, at.broker.connect() as client:
        await at.cut_off()
        for _ in range(3):
            assert await at.fetch(client, 1) == (ErrorCode.NONE, 0)


@on_uvloop
async def test_records_published_elsewhere_are_read_by_those_sent_away() -> None:
    async with scene() as at, at.broker.connect() as old, at.other.connect() as elsewhere:
        await at.cut_off()
        await until(lambda: at.other.process.serving.logs.partition("topic", at.index), "the other one leads")
        assert (await elsewhere.produce("topic", at.index, wire.batch([b"new"]))).base_offset == 1
        with pytest.raises(ConnectionEndedError):
            await at.fetch(old, 1)
        assert await at.fetch(elsewhere, 1) == (ErrorCode.NONE, 1)
        listed = at.broker.process.serving.metadata_brokers
        assert [one.broker_id for one in listed.brokers()] == [0, 1], "it tells where else to ask"


@on_uvloop
async def test_consumers_wait_again_when_the_store_is_back() -> None:
    async with scene() as at:
        logs = at.broker.process.serving.logs
        led = logs.partition("topic", at.index)
        await at.cut_off()
        await until(lambda: at.other.process.serving.logs.partition("topic", at.index), "the other one leads")
        at.store.switch.come_back()
        await until(lambda: logs.partition("topic", at.index) not in (None, led), "it leads its share again")
        async with at.broker.connect() as client:
            assert await at.fetch(client, 1) == (ErrorCode.NONE, 0)


@on_uvloop
async def test_leader_that_goes_on_lets_its_consumers_wait() -> None:
    """Each empty poll was refused, and its consumer looked for another leader, while this one took records."""
    async with scene(all_cut_off=True) as at, at.broker.connect() as producer:
        await at.cut_off()
        async with asyncio.timeout(PATIENCE_SEC):
            is_recent = False
            while not is_recent:  # On a busy machine the poll may take longer than a lease.
                part = await producer.produce("topic", at.index, wire.batch([b"during"]))
                assert part.error_code == 0
                async with at.broker.connect() as client:
                    assert await at.fetch(client, part.base_offset) == (ErrorCode.NONE, 1)
                    polled = await at.fetch(client, part.base_offset + 1)
                is_recent = at.leads_for_sure()
        assert polled == (ErrorCode.NONE, 0)


@on_uvloop
async def test_leader_without_records_for_long_sends_consumers_away() -> None:
    """Another broker may have ended its journal meanwhile."""
    async with scene(all_cut_off=True) as at, at.broker.connect() as old, at.broker.connect() as producer:
        await at.cut_off()
        assert (await producer.produce("topic", at.index, wire.batch([b"during"]))).base_offset == 1
        async with asyncio.timeout(PATIENCE_SEC):
            with pytest.raises(ConnectionEndedError):
                while True:  # When the silence has lasted for a lease, all waits end early, once.
                    assert await at.fetch(old, 2, max_wait_ms=FOREVER_MS) == (ErrorCode.NONE, 0)
        assert not at.leads_for_sure()
        async with at.broker.connect() as again:
            assert await at.fetch(again, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


@on_uvloop
async def test_silence_of_the_store_is_a_warning_and_a_metric() -> None:
    async with scene() as at:
        basics = at.broker.process.basics
        assert not basics.health.warnings()
        await at.cut_off()
        assert basics.health.warnings()["metadata_store"].startswith("silent for ")
        assert not basics.health.readiness_problems()
        [silent_sec] = basics.metrics.readings["kafscale_metadata_store_silent_seconds"].values()
        assert silent_sec() >= LEASE_SEC
        at.store.switch.come_back()
        await until(lambda: not basics.health.warnings(), "the store answers again")
