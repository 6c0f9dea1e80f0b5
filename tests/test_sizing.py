"""The figures of docs/sizing.md are what brokers, planner and etcd do."""

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aetcd import rpc
from grpc import insecure_channel

from kafscale.log.partition import PartitionId
from kafscale.log.partition_log import CHECKPOINT_SEGMENTS
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.conditional_put import HEDGED_BYTES
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.log.writing.uploads import Uploader
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.objects.hedging import Hedge
from kafscale.ops.metrics import FlushOutcome, Metrics
from kafscale.protocol.types import Buffer
from scripts import sizing
from tests.log.brokers import Cluster, cluster_scenario
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_SEC, wait_until

TOPIC = "orders"
SECONDS = 600


async def _check_flushes(cluster: Cluster, batches_per_sec: float, interval_ms: int) -> None:
    """Write at random moments; flushes, PUTs and transactions are as many as the formula says."""
    counted = Metrics()
    broker = cluster.broker(0, MeasuredMetadataStore(cluster.metadata, counted))
    await broker.start()
    await cluster.create_topic(TOPIC)
    transact = counted.metadata_store("transact").duration
    before = sum(transact.counts)
    loop, moments, told = asyncio.get_running_loop(), random.Random(7), []
    end = loop.time() + SECONDS
    while loop.time() < end:
        told.append(broker.produce(TOPIC, 0, b"value"))
        await asyncio.sleep(moments.expovariate(batches_per_sec))
    await asyncio.gather(*told)
    flushes = broker.metrics.flushes.outcomes[FlushOutcome.PUBLISHED]
    written_per_sec = len(told) / SECONDS
    expected = SECONDS * sizing.flushes_per_sec(written_per_sec, 0, flush_interval_ms=interval_ms)
    assert flushes == pytest.approx(expected, rel=0.05)
    assert cluster.objects.count("put_if_absent", "*/segment-*") == flushes * sizing.PUTS_PER_FLUSH
    checkpoints = cluster.objects.count("put_if_absent", "*checkpoint*")
    assert checkpoints == flushes // CHECKPOINT_SEGMENTS
    assert sum(transact.counts) - before == flushes


@cluster_scenario(flush_interval_ms=500)
async def test_a_busy_partition_is_flushed_once_per_interval(cluster: Cluster) -> None:
    await _check_flushes(cluster, 10, 500)


@cluster_scenario(flush_interval_ms=5000)
async def test_a_longer_interval_takes_fewer_requests(cluster: Cluster) -> None:
    await _check_flushes(cluster, 10, 5000)


@cluster_scenario(flush_interval_ms=500)
async def test_a_quiet_partition_is_flushed_once_per_batch(cluster: Cluster) -> None:
    await _check_flushes(cluster, 0.2, 500)


def test_a_full_segment_does_not_wait_for_the_interval() -> None:
    assert sizing.flushes_per_sec(100, 40e6, segment_bytes=4_000_000) == pytest.approx(10)
    assert sizing.flushes_per_sec(0, 0) == 0


class _LateStore(ControlledStore):
    """Answers every put late, and keeps nothing; `puts`: how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self._latencies = random.Random(7)

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        self.puts += 1
        await asyncio.sleep(self._latencies.lognormvariate(math.log(0.025), 0.7))


@pytest.mark.parametrize("percent", [0, 5, 10, 30])
@pytest.mark.parametrize("segment_bytes", [100, HEDGED_BYTES + 1])
def test_the_hedged_percentage_of_small_puts_is_sent_twice(percent: int, segment_bytes: int) -> None:
    flushes, objects, body = 3000, _LateStore(), bytes(segment_bytes)
    retries = StoreRetries(random.Random(7))
    uploader = Uploader(objects, "default", retries, Hedge(percent / 100) if percent else None)

    async def flush_all() -> None:
        for number in range(flushes):
            sealed = SealedSegment(
                buffer=SegmentBuffer(0),
                reference=sizing._reference(number, number, segment_bytes, 0),
                parts=[body],
                index=b"index",
                index_version=1,
                created_ms=0,
            )
            upload = await uploader.upload(PartitionId(TOPIC, 0), sealed)
            await upload.index_is_there()

    run_virtually(flush_all())
    expected = flushes * sizing.puts_per_flush(segment_bytes, percent)
    twice, expected_twice = objects.puts - 2 * flushes, expected - 2 * flushes
    assert twice == pytest.approx(expected_twice, rel=0.1)


def _calls(broker: InProcessBroker, *methods: str) -> int:
    counted = broker.metrics.object_store_operations
    return sum(sum(counted[method].duration.counts) for method in methods)


async def test_a_merge_takes_the_requests_that_the_model_counts() -> None:
    settings: dict[str, Any] = {"merge_min_segments": 4, "merge_check_interval_ms": 3_600_000}
    writes, reads = (
        ("put", "put_if_absent", "put_if_absent_streamed"),
        ("get", "get_range", "read_into", "size_bytes"),
    )
    async with in_process_broker(**settings) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        for number in range(20):
            part = await client.produce(TOPIC, 0, wire.batch([b"value %d" % number]))
            assert part.error_code == 0
        before = _calls(broker, *writes), _calls(broker, *reads), _calls(broker, "list")
        sources = tuple(broker.partition(TOPIC).references or ())[:17]
        assert await broker.process.serving.segment_life.merger.consider(broker.partition(TOPIC))
        after = _calls(broker, *writes), _calls(broker, *reads), _calls(broker, "list")
    puts, gets, lists = (now - then for now, then in zip(after, before, strict=True))
    model = sizing.Merging()
    model.count(sources)
    assert (puts, lists) == (sizing.PUTS_PER_MERGE, sizing.LISTS_PER_MERGE)
    assert model.puts == puts + lists
    assert model.gets == gets


def test_merging_costs_little_and_keeps_the_partition_small() -> None:
    busy = sizing.calls_in_a_day(10, 10_000)
    assert 0 < busy.puts / busy.flushes - sizing.puts_per_flush(10_000 / 2) < 0.2
    assert 1 < busy.gets / busy.flushes < 1.2
    off = sizing.calls_in_a_day(10, 10_000, merges=False)
    assert off.puts < busy.puts and off.gets == 0


def test_a_large_merge_is_uploaded_in_parts() -> None:
    small, large = sizing.Merging(), sizing.Merging()
    small.count(tuple(sizing._reference(n, n, 1_000_000, 0) for n in range(10)))
    large.count(tuple(sizing._reference(n, n, 10_000_000, 0) for n in range(10)))
    assert small.puts == sizing.PUTS_PER_MERGE + sizing.LISTS_PER_MERGE
    assert large.puts == small.puts + 6 + 1
    assert (small.gets, large.gets) == (1 + 10, 1 + 10 * 5)


def test_etcd_becomes_as_large_as_its_history(tmp_path: Path) -> None:
    record = bytes(sizing.record_bytes(64))
    partitions, publications = 50, 2000
    with etcd_server(tmp_path, flags=("--unsafe-no-fsync",)) as etcd:
        with insecure_channel(etcd.endpoint.removeprefix("http://")) as channel:
            puts = rpc.KVStub(channel)
            for batch in range(0, publications, 50):
                keys = (
                    b"partitions/orders/%d" % (number % partitions) for number in range(batch, batch + 50)
                )
                operations = [
                    rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=record)) for key in keys
                ]
                puts.Txn(rpc.TxnRequest(success=operations), timeout=PATIENCE_SEC)
        expected = publications * len(record)
        # It writes a tenth of a second's changes at once.
        wait_until(lambda: _file_bytes(etcd) > expected, f"the file has {expected} bytes")
        size_bytes = _file_bytes(etcd)
    assert sizing.etcd_bytes(partitions, publications / 600, 300, len(record)) == pytest.approx(
        expected + partitions * len(record)
    )
    assert size_bytes < 2 * expected


def _file_bytes(etcd: EtcdServer) -> float:
    return etcd.metric("etcd_mvcc_db_total_size_in_bytes")


def test_memory_is_the_sum_of_what_settings_allow() -> None:
    rows = dict(sizing.memory_rows())
    parts = [float(value.replace(",", "")) for name, value in rows.items() if "together" not in name]
    assert sum(parts) == pytest.approx(float(rows["**together**"].strip("*").replace(",", "")), abs=2)
