"""The source beside a broker that seals, merges and collects all the time: all that is acknowledged, and once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import AsyncExitStack, closing
from typing import Any, TypeVar

import pytest

from kafscale.arrow.record_columns import record_columns
from kafscale.log.life import removals
from kafscale.memory.slab import SlabPool
from kafscale.metadata.store import KeyValue, MetadataReader, Snapshot
from kafscale.objects.object_store import ListingReader, ObjectInfo
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import decode_records
from kafscale.reader.shared_splits import AnySplit, SharedSplit
from kafscale.reader.split_reader import split_batches
from kafscale.reader.store_thread import StoreThread
from spark_jobs.source.options import parse_options
from spark_jobs.source.planning import Planner, topic_states
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.nightly import by_day
from tests.support.on_uvloop import on_uvloop

Result = TypeVar("Result")
Values = dict[tuple[int, int], bytes | None]

TOPIC = "events"
NAMESPACE = "default"
PARTITIONS = 12
GRACE_SEC = 0.5
PAUSE_SEC = 0.02
"""Between a producer's requests: what is read should not grow faster than it is read."""
WORK: dict[str, Any] = {
    "seal_interval_ms": 50,
    "seal_max_age_ms": 400,
    "merge_check_interval_ms": 100,
    "merge_min_segments": 3,
    "garbage_check_interval_sec": 0.1,
    "garbage_grace_sec": GRACE_SEC,
}
"""A hundred times faster than a broker would do it."""


class _InLoop:
    """The broker's stores in memory, for readers in other threads."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._loop = asyncio.get_running_loop()
        self._objects = broker.objects
        self._metadata = broker.metadata

    def _call(self, call: Coroutine[Any, Any, Result]) -> Awaitable[Result]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._call(self._objects.get_range(key, start, length))

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        return await self._call(self._objects.read_into(key, start, length, targets))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async def listed() -> list[ObjectInfo]:
            return [info async for info in self._objects.list(prefix)]

        for info in await self._call(listed()):
            yield info

    async def range(self, prefix: str) -> Snapshot:
        return await self._call(self._metadata.range(prefix))


class _Objects(_InLoop):
    async def get(self, key: str) -> bytes:
        return await self._call(self._objects.get(key))


class _Metadata(_InLoop):
    async def get(self, key: str) -> KeyValue | None:
        return await self._call(self._metadata.get(key))


class _Stores:
    """`StoreOpener`."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.objects = _Objects(broker)
        self.metadata = _Metadata(broker)

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        return self.objects

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return self.metadata


class Source:
    """Plans and reads batches of the topic, outside of the broker's loop. `shared`: splits of many partitions."""

    def __init__(self, broker: InProcessBroker, **options: str) -> None:
        self._stores = _Stores(broker)
        self._options = parse_options({"subscribe": TOPIC, "splitBytes": "2MiB"} | options)
        self.shared = 0

    def plan(self) -> list[AnySplit]:
        """As it is now."""

        async def plan() -> list[AnySplit]:
            states = topic_states(self._options, NAMESPACE, self._stores.metadata, self._stores.objects)
            planner = Planner(
                self._options, NAMESPACE, self._stores.metadata, self._stores.objects, states, _no_loss
            )
            return await planner.batch_splits()

        splits = asyncio.run(plan())
        self.shared += sum(isinstance(split, SharedSplit) for split in splits)
        return splits

    def read(self, splits: Sequence[AnySplit]) -> Values:
        """Every place comes once."""
        found: Values = {}
        for split in splits:
            with (
                StoreThread(self._stores) as stores,
                closing(split_batches(NAMESPACE, split, stores, SlabPool(1 << 20))) as stored,
            ):
                for batch in record_columns(stored, TOPIC, include_headers=False):
                    for row in batch.to_pylist():
                        place = row["partition"], row["offset"]
                        assert place not in found
                        found[place] = row["value"]
        return found


def _no_loss(problem: str) -> None:
    raise AssertionError(problem)


class Producer:
    """Writes until it is stopped. `acknowledged`: the values by their place."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.acknowledged: Values = {}
        self._broker = broker
        self._stopping = False

    async def run(self, partitions: Sequence[int]) -> None:
        number = 0
        async with self._broker.connect() as client:
            while not self._stopping:
                number += 1
                values = [b"%d of %d, entry %d" % (one, partitions[0], number) * 9 for one in range(3)]
                await client.send_produce(TOPIC, {one: wire.batch(values) for one in partitions})
                _, parts = await client.receive_produce()
                await asyncio.sleep(PAUSE_SEC)
                for partition, part in parts.items():
                    assert part.error_code == 0
                    for offset, value in enumerate(values, part.base_offset):
                        self.acknowledged[partition, offset] = value

    def stop(self) -> None:
        self._stopping = True


async def consumed(client: Client) -> Values:
    """The records that a consumer finds from the beginning to the end of each partition."""
    found: Values = {}
    for partition in range(PARTITIONS):
        offset = 0
        while True:
            part = (await client.fetch(TOPIC, {partition: offset}))[partition]
            assert part.error_code == 0
            data = memoryview(part.records or b"")
            for at, header in walk(data, 0, len(data), "reply"):
                for one in decode_records(data[at : at + header.size_bytes], 1 << 20):
                    found[partition, one.offset] = one.value
                offset = header.last_offset + 1
            if offset >= part.high_watermark:
                break
    return found


def deletions(broker: InProcessBroker, suffix: str) -> int:
    """The calls that deleted at least one such object."""
    return broker.objects.count("delete", f"*{suffix}*")


# What has to be deleted between a plan and its reads: the suffix, and how many calls.
ROUNDS = (
    ("", 0),
    (".entry", by_day(1, by_night=5)),
    (".gathered", by_day(1, by_night=2)),
    (".kfs", by_day(1, by_night=2)),
)


@on_uvloop
async def test_reads_are_exact_while_slices_are_sealed_and_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(removals, "GRACE_SEC", GRACE_SEC)
    async with in_process_broker(**WORK) as broker:
        await broker.create_topic(TOPIC, partitions=PARTITIONS)
        source, producer = Source(broker), Producer(broker)
        halves = range(0, PARTITIONS, 2), range(1, PARTITIONS, 2)
        reads: list[Values] = []
        writing = asyncio.gather(*(producer.run(half) for half in halves))
        try:
            for suffix, calls in ROUNDS:
                wanted = len(producer.acknowledged) + 200
                await until(lambda: len(producer.acknowledged) >= wanted, "records are written")  # noqa: B023
                before = dict(producer.acknowledged)
                splits = await asyncio.to_thread(source.plan)
                # Most of what was planned is somewhere else by then.
                gone = deletions(broker, suffix) + calls
                await until(lambda: deletions(broker, suffix) >= gone, f"objects {suffix} are collected")  # noqa: B023
                found = await asyncio.to_thread(source.read, splits)
                assert before.items() <= found.items()
                reads.append(found)
        finally:
            producer.stop()
            await writing
        # Some of it was acknowledged after it was planned.
        assert all(found.items() <= producer.acknowledged.items() for found in reads)
        assert await asyncio.to_thread(lambda: source.read(source.plan())) == producer.acknowledged
        async with broker.connect() as client:
            assert await consumed(client) == producer.acknowledged
        assert source.shared > 0, "slices of many partitions were planned"
