"""A rebuild of a cluster whose brokers wrote journals: all that was acknowledged, once, and nothing from then on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.formats.journal_keys import entry_key, journals_prefix, parse_entry_key
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.partition_record import decode_partition_record
from kafscale.formats.snapshot_file import SnapshotHeader, lasting
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import MetadataReader
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.recovery import rebuild as planning
from kafscale.tools.recovery.rebuild import plan_rebuild
from kafscale.tools.recovery.restored import with_snapshot
from kafscale.tools.recovery.snapshot_contents import SnapshotContents, read_contents
from kafscale.tools.recovery.write import RecoveryRefusedError, RecoveryWriter
from tests.groups.controlled_metadata import Metadata
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.tools.fsck.two_stores import Nobody, problems
from tests.tools.recovery.recovery_bucket import Silence

NAMESPACE = "default"
TOPIC = "orders"
SEALS = 50
"""Milliseconds between two rounds of sealing."""
NEVER = 3_600_000
MANY = b"x" * 300_000


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "FIRST_RETRY_SEC", 0.0)


class Acknowledged:
    """Produces numbered values to two partitions, and keeps what was acknowledged."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.values: dict[int, list[bytes]] = {0: [], 1: []}
        self._number = 0

    async def produce(self, count: int, filling: bytes = b"") -> None:
        for _ in range(count):
            index, value = self._number % 2, b"%06d" % self._number + filling
            self._number += 1
            answer = await self._client.produce(TOPIC, index, wire.batch([value]))
            assert answer.error_code == 0, answer
            self.values[index].append(value)


async def snapshot(metadata: MetadataReader) -> SnapshotContents:
    found = await metadata.range("")
    items = lasting(found.items)
    header = SnapshotHeader(
        cluster_id="", namespace=NAMESPACE, revision=found.revision, created_ms=0, keys=len(items)
    )
    return read_contents("s.kfsnap", header, {item.key: item.value for item in items})


async def writer(
    metadata: MemoryStore, objects: ControlledStore, contents: SnapshotContents | None
) -> RecoveryWriter:
    if contents is None:
        plan = await plan_rebuild(objects, NAMESPACE, concurrency=4, progress=Silence())
    else:
        plan = await plan_rebuild(
            objects, NAMESPACE, known=contents.known(), concurrency=4, progress=Silence()
        )
        contents.header = replace(contents.header, cluster_id=plan.cluster_id or "")
        plan = with_snapshot(plan, contents, 1)
    return RecoveryWriter(
        metadata, objects, plan, configs={}, new_uuid=new_kafka_uuid, progress=Silence(), now_ms=lambda: 1
    )


@asynccontextmanager
async def lost_cluster(**settings: Any) -> AsyncIterator[tuple[InProcessBroker, Metadata, Acknowledged]]:
    """A broker that goes on while its metadata store is away."""
    metadata = Metadata()
    async with in_process_broker(metadata=metadata, **settings) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, 2)
        try:
            yield broker, metadata, Acknowledged(client)
        finally:
            metadata.is_away = False


async def read_back(metadata: MemoryStore, objects: ControlledStore) -> dict[int, list[bytes]]:
    """The records that a broker of the rebuilt cluster serves, by partition."""
    found: dict[int, list[bytes]] = {}
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        await until(
            # Their logs may stay closed: where all is sealed already, only a producer opens them.
            lambda: all(broker.process.serving.logs.partition(TOPIC, index) for index in (0, 1)),
            "the partitions are led",
        )
        for index in (0, 1):
            values: list[bytes] = []
            end = broker.partition(TOPIC, index).record.log_end_offset
            while len(values) < end:
                part = (await client.fetch(TOPIC, {index: len(values)}))[index]
                assert part.error_code == 0, part
                values += [value or b"" for _, value in wire.records_in(part.records)]
            found[index] = values
    return found


async def entries_of(objects: ControlledStore) -> list[str]:
    return [info.key async for info in objects.inner.list(journals_prefix(NAMESPACE))]


async def journal_records(metadata: MemoryStore) -> dict[str, JournalRecord]:
    return {
        item.key.removeprefix(keys.JOURNALS): decode_journal_record(item.key, item.value)
        for item in (await metadata.range(keys.JOURNALS)).items
    }


@pytest.mark.parametrize("with_backup", [True, False])
async def test_what_was_acknowledged_comes_back_once(with_backup: bool) -> None:
    async with lost_cluster(seal_interval_ms=SEALS) as (broker, old, made):
        await made.produce(12, MANY)
        contents = await snapshot(old)
        assert contents.journals and not contents.unknown
        await made.produce(10, MANY)
        await until(
            lambda: (
                broker.partition(TOPIC).record.segments
                and not broker.partition(TOPIC).record.segments[0].object_key.endswith(".entry")
            ),
            "something is sealed",
        )
        await made.produce(7)
        old.is_away = True
        await made.produce(5)
        metadata = MemoryStore()
        rebuild = await writer(metadata, broker.objects, contents if with_backup else None)
        await rebuild.write(skip_damaged=False)
        assert await read_back(metadata, broker.objects) == made.values
        if with_backup:
            held = await metadata.get(keys.topic(TOPIC))
            assert held is not None
            assert decode_topic_record(held.key, held.value) == contents.topics[TOPIC]


async def test_old_broker_acknowledges_nothing_after_the_rebuild() -> None:
    async with lost_cluster(seal_interval_ms=NEVER) as (broker, old, made):
        await made.produce(6)
        old.is_away = True
        metadata = MemoryStore()
        rebuild = await writer(metadata, broker.objects, None)
        await made.produce(2)
        with pytest.raises(RecoveryRefusedError, match=r"2 entries more .*still runs"):
            await rebuild.write(skip_damaged=False)
        async with broker.connect() as client:
            answer = await client.produce(TOPIC, 0, wire.batch([b"late"]))
            assert answer.error_code != 0
        await (await writer(metadata, broker.objects, None)).write(skip_damaged=False)
        assert await read_back(metadata, broker.objects) == made.values


async def test_journals_end_in_the_rebuilt_store_behind_what_counts() -> None:
    async with lost_cluster(seal_interval_ms=NEVER) as (broker, old, made):
        await made.produce(6)
        old.is_away = True
        metadata = MemoryStore()
        for _ in range(2):  # The second run finds all of it done.
            await (await writer(metadata, broker.objects, None)).write(skip_damaged=False)
        ((journal_id, record),) = (await journal_records(metadata)).items()
        assert record.ended_at == record.progress + 1 == 6
        fence = entry_key(NAMESPACE, journal_id, 6)
        assert len(await broker.objects.inner.get(fence)) < 120
        held = await metadata.get(keys.partition(TOPIC, 0))
        assert held is not None
        rebuilt = decode_partition_record(held.key, held.value)
        assert rebuilt.journal is None and len(rebuilt.segments) == 3
        report = await check_cluster(Reading(metadata, broker.objects, NAMESPACE, 4), Nobody(), verify=True)
        assert problems(report) == []


async def test_many_slices_stay_in_the_record() -> None:
    """A checkpoint names no slice: the collector would take it for needless."""
    async with lost_cluster(seal_interval_ms=NEVER) as (broker, old, made):
        await made.produce(2 * 140)
        old.is_away = True
        metadata = MemoryStore()
        await (await writer(metadata, broker.objects, None)).write(skip_damaged=False)
        held = await metadata.get(keys.partition(TOPIC, 0))
        assert held is not None
        record = decode_partition_record(held.key, held.value)
        assert (len(record.segments), record.checkpoint_key) == (140, "")


async def test_journal_that_only_the_snapshot_knows_is_ended() -> None:
    async with lost_cluster() as (broker, old, _):
        contents = await snapshot(old)
        assert await entries_of(broker.objects) == []
        metadata = MemoryStore()
        await (await writer(metadata, broker.objects, contents)).write(skip_damaged=False)
        [journal_id] = contents.journals
        assert (await journal_records(metadata))[journal_id].ended_at == 0
        first = min(await entries_of(broker.objects))
        assert parse_entry_key(first) is not None and first == entry_key(NAMESPACE, journal_id, 0)


async def test_entry_that_cannot_be_read_stops_the_rebuild() -> None:
    async with lost_cluster(seal_interval_ms=NEVER) as (broker, old, made):
        await made.produce(6)
        old.is_away = True
        damaged = (await entries_of(broker.objects))[3]
        data = bytearray(await broker.objects.inner.get(damaged))
        data[60] ^= 1
        await broker.objects.inner.put(damaged, [bytes(data)])
        metadata = MemoryStore()
        with pytest.raises(RecoveryRefusedError, match=r"1 entries .*cannot be read"):
            await (await writer(metadata, broker.objects, None)).write(skip_damaged=False)
        await (await writer(metadata, broker.objects, None)).write(skip_damaged=True)
        ((_, record),) = (await journal_records(metadata)).items()
        assert record.ended_at == 6, "what follows the entry counts"
