"""A check beside a broker that produces, merges, expires, makes and deletes topics: nothing of it is a problem."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse

from kafscale.formats import object_keys
from kafscale.log.journal.collector import JournalCollector
from kafscale.log.life import removals
from kafscale.objects.object_store import ObjectInfo
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.findings import FsckReport, OrphanReason
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.repair import Repairer, RepairOutcome
from kafscale.tools.fsck.repair_plan import RepairAction, plan_repairs
from kafscale.tools.fsck.topic_rest import TopicRest
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.nightly import by_day
from tests.support.waiting import PATIENCE_MS, wait_until_async
from tests.tools.fsck.two_stores import Nobody, kinds, orphans, problems, reasons

NAMESPACE = "default"
CHECKS = by_day(3, by_night=25)  # each takes longer than the one before: the broker goes on meanwhile
SEALED = 10_000
PASSING = {
    OrphanReason.ABOVE_LOG_END,
    OrphanReason.SUPERSEDED,
    OrphanReason.UNPUBLISHED_MERGE,
    OrphanReason.EXPIRED,
    OrphanReason.OLD_CHECKPOINT,
    OrphanReason.UNNAMED_CHECKPOINT,
    OrphanReason.TOPIC_DELETING,
    OrphanReason.TOPIC_DELETED,
}
"""Findings that a healthy broker at work may cause. There is but one leader: nothing is ever left over."""


class SlowStore(ControlledStore):
    """Shares a broker's objects, and lets the broker work between any two steps of a listing."""

    def __init__(self, shared: ControlledStore) -> None:
        super().__init__()
        self.inner = shared.inner

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix):
            yield info
            await asyncio.sleep(0)

    async def size_bytes(self, key: str) -> int:
        await asyncio.sleep(0)
        return await super().size_bytes(key)


@asynccontextmanager
async def under_way(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reading(broker: InProcessBroker) -> Reading:
    return Reading(broker.metadata, SlowStore(broker.objects), NAMESPACE, 4)


async def check(broker: InProcessBroker, *, verify: bool) -> FsckReport:
    return await check_cluster(reading(broker), Nobody(), verify=verify)


class Producing:
    """A producer to both partitions of a topic; `count`: requests that were acknowledged.

    What it writes is gathered with others' slices; much more (`repeated`) becomes segments.
    """

    def __init__(self, broker: InProcessBroker, topic: str, repeated: int = 40) -> None:
        self._broker = broker
        self._topic = topic
        self._repeated = repeated
        self.count = 0

    async def run(self) -> None:
        async with self._broker.connect() as client:
            while True:
                records = wire.batch([b"%08d" % self.count * self._repeated] * 3)
                answer = await client.produce(self._topic, self.count % 2, records)
                assert answer.error_code == 0, answer
                self.count += 1

    async def more(self) -> None:
        """Wait until it has gone on."""
        enough = self.count + 8
        await until(lambda: self.count > enough, f"more records in {self._topic}")


async def delete_topic(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=PATIENCE_MS)
    reply = await client.call(request, DeleteTopicsResponse, 5)
    assert reply.responses[0].error_code == 0, reply


async def make_and_delete_topics(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        for number in itertools.count():
            name = await broker.create_topic(f"passing-{number % 3}", 2)
            for index in range(2):
                await client.produce(name, index, wire.batch([b"x"]))
            await delete_topic(client, name)


@pytest.fixture
def _soon_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects go soon after their references, so that a check meets many that do."""
    monkeypatch.setattr(removals, "GRACE_SEC", 0.02)
    run = JournalCollector.run

    async def run_often(self: JournalCollector) -> None:
        self._grace_ms = self._gathered._grace_ms = 20.0
        self._interval_sec = 0.05
        await run(self)

    monkeypatch.setattr(JournalCollector, "run", run_often)


BUSY: dict[str, Any] = {
    "seal_interval_ms": 50,
    "merge_min_segments": 3,
    "merge_check_interval_ms": 100,
    "merge_bytes_per_sec": 1 << 30,
    "retention_check_interval_ms": 20,
}
KEEPS_LITTLE = {"retention.bytes": 20_000}


@pytest.mark.usefixtures("_soon_removed")
async def test_nothing_that_changes_meanwhile_is_a_problem() -> None:
    async with in_process_broker(**BUSY) as broker:
        await broker.create_topic("short", 2, KEEPS_LITTLE)
        await broker.create_topic("long", 2)
        producers = [Producing(broker, "short"), Producing(broker, "long", SEALED)]
        async with under_way(*(one.run() for one in producers), make_and_delete_topics(broker)):
            for number in range(CHECKS):
                report = await check(broker, verify=number % 2 == 0)
                assert kinds(report) == set(), report.all_findings
                assert set(reasons(report)) <= PASSING, orphans(report)
                for producing in producers:
                    await producing.more()
            await until(lambda: broker.metrics.merges.sources > 20, "segments are merged")
            await until(lambda: broker.partition("short").record.log_start_offset > 0, "records expire")
    report = await check(broker, verify=True)
    assert problems(report) == [] and set(reasons(report)) <= PASSING


FAR_FUTURE_MS = 1 << 60


async def repair(broker: InProcessBroker) -> list[RepairOutcome]:
    """Everything counts as old, so that repairs go for all that nobody refers to."""
    repairs = plan_repairs(await check(broker, verify=False), FAR_FUTURE_MS, drops_missing=True)
    repairer = Repairer(
        reading(broker),
        before_ms=FAR_FUTURE_MS,
        new_token=lambda: uuid.uuid4().hex,
        topic_rest=TopicRest(reading(broker), uuid.uuid4),
    )
    return await repairer.carry_out(repairs)


@pytest.mark.usefixtures("_soon_removed")
async def test_repairs_beside_a_broker_take_nothing_from_its_readers() -> None:
    async with in_process_broker(**BUSY) as broker:
        await broker.create_topic("long", 2)
        producing = Producing(broker, "long", SEALED)
        async with under_way(producing.run()):
            while broker.metrics.merges.sources <= 20:
                for _ in range(CHECKS):
                    await repair(broker)
                    await producing.more()
        for index in range(2):
            broker.forget_cached("long", index)
        async with broker.connect() as client:
            for index in range(2):
                offset, end = 0, broker.partition("long", index).record.log_end_offset
                while offset < end:
                    part = (await client.fetch("long", {index: offset}))[index]
                    assert part.error_code == 0, part
                    for found, _ in wire.records_in(part.records):
                        assert found == offset
                        offset += 1
    assert problems(await check(broker, verify=True)) == []


async def test_broker_deletes_late_uploads_of_a_deleted_topic() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic("gone")
        await delete_topic(client, "gone")
        late = object_keys.segment_key(NAMESPACE, "gone", 0, 3)
        await broker.objects.inner.put_if_absent(late, [b"late"])
        [outcome] = await repair(broker)
        assert outcome.repair.action is RepairAction.DELETE_TOPIC_REST and outcome.problem == ""

        async def is_removed() -> bool:
            return not await broker.objects.keys("*/gone/*")

        await wait_until_async(is_removed, "the rest of the topic is removed")
        assert await repair(broker) == []
