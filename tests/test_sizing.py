"""The figures of docs/sizing.md are what brokers, planner and etcd do."""

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from aetcd import rpc
from grpc import insecure_channel

from kafscale.log.writing.conditional_put import HEDGED_BYTES, ConditionalPut
from kafscale.log.writing.flush_pacer import FlushPacer, FlushPolicy, Waiting
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.hedging import Hedge
from kafscale.ops.metrics import FlushOutcome
from kafscale.ops.prices import EXPRESS_ONE_ZONE, Prices
from kafscale.protocol.types import Buffer
from scripts import sizing
from tests.log.brokers import Cluster, cluster_scenario
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_SEC, wait_until

TOPIC = "orders"
PARTITIONS = 5
SECONDS = 600
PACED_BATCHES = by_day(15_000, by_night=2_000_000)  # at most, for each rate


async def _check_entries(cluster: Cluster, batches_per_sec: float, interval_ms: int) -> None:
    """Write to several partitions at random moments; entries are as many as the formula says."""
    broker = cluster.broker(0)
    await broker.start()
    await cluster.create_topic(TOPIC, PARTITIONS)
    loop, moments, told = asyncio.get_running_loop(), random.Random(7), []
    end = loop.time() + SECONDS
    while loop.time() < end:
        told.append(broker.produce(TOPIC, moments.randrange(PARTITIONS), b"value"))
        await asyncio.sleep(moments.expovariate(batches_per_sec))
    await asyncio.gather(*told)
    load = sizing.Load(
        partitions=PARTITIONS, batches_per_sec=len(told) / SECONDS / PARTITIONS, bytes_per_sec=100, brokers=1,
        flush_interval_ms=interval_ms, flushes_per_sec=0,
    )  # fmt: skip
    entries = cluster.objects.count("put_if_absent", "*.entry")
    assert entries == broker.metrics.flushes.outcomes[FlushOutcome.PUBLISHED]
    assert entries == pytest.approx(SECONDS * load.entries_per_sec, rel=0.07)


@cluster_scenario(flush_interval_ms=500, flushes_per_sec=0)
async def test_busy_partitions_share_an_entry_per_interval(cluster: Cluster) -> None:
    await _check_entries(cluster, 20, 500)


@cluster_scenario(flush_interval_ms=5000, flushes_per_sec=0)
async def test_longer_interval_takes_fewer_entries(cluster: Cluster) -> None:
    await _check_entries(cluster, 20, 5000)


@cluster_scenario(flush_interval_ms=500, flushes_per_sec=0)
async def test_rare_batches_have_an_entry_each(cluster: Cluster) -> None:
    await _check_entries(cluster, 0.2, 500)


@pytest.mark.parametrize("batches_per_sec", [0.2, 2, 20, 200])
@pytest.mark.parametrize(("interval_ms", "budget"), [(500, 4), (500, 1), (5000, 4), (5000, 0), (100, 2)])
def test_pacer_makes_the_entries_of_the_model(batches_per_sec: float, interval_ms: int, budget: int) -> None:
    seconds = min(10 * SECONDS, PACED_BATCHES / batches_per_sec)
    policy = FlushPolicy(interval_ms=interval_ms, entry_bytes=2**23, flushes_per_sec=budget, in_flight=4)
    pacer, moments = FlushPacer(policy, 0.0), random.Random(7)
    next_batch_sec, since_sec, entries, now_sec = 0.0, math.inf, 0, 0.0
    while now_sec < seconds:
        if now_sec >= next_batch_sec:
            since_sec = min(since_sec, now_sec)
            next_batch_sec += moments.expovariate(batches_per_sec)
        next_entry_sec = math.inf
        if since_sec < math.inf:
            waiting = Waiting(since_ms=round(since_sec * 1000), size_bytes=100)
            delay_sec = pacer.delay_sec(waiting, 0, now_sec, round(now_sec * 1000))
            assert delay_sec is not None
            next_entry_sec = now_sec + max(delay_sec, 0.001)
            if delay_sec < 0.0005:
                pacer.began(now_sec)
                entries, since_sec, next_entry_sec = entries + 1, math.inf, math.inf
        now_sec = min(next_batch_sec, next_entry_sec)
    load = sizing.Load(
        partitions=1, batches_per_sec=batches_per_sec, bytes_per_sec=100, brokers=1,
        flush_interval_ms=interval_ms, flushes_per_sec=budget,
    )  # fmt: skip
    assert entries == pytest.approx(seconds * load.entries_per_sec, rel=0.2)


def test_partitions_do_not_matter_for_entries() -> None:
    few = sizing.Load(partitions=10, batches_per_sec=100)
    assert few.entries_per_sec == replace(few, partitions=10_000, batches_per_sec=0.1).entries_per_sec == 12


def test_thousand_partitions_cost_less_than_100_dollars() -> None:
    load = sizing.Load(partitions=1000, batches_per_sec=1, bytes_per_sec=100, flushes_per_sec=2)
    assert (load.brokers, load.flush_interval_ms, load.entries_per_sec) == (3, 500, 6)
    calls = sizing.calls_in_a_day(load)
    assert calls.dollars_a_month(Prices()) < 100
    assert calls.dollars_a_month(Prices(), EXPRESS_ONE_ZONE) < 30
    everywhere = sizing.calls_in_a_day(replace(load, following=3))
    assert 100 < everywhere.dollars_a_month(Prices()) < 110
    default = replace(load, flushes_per_sec=sizing.FLUSHES_PER_SEC_ON_A_BUCKET)
    assert 180 < sizing.calls_in_a_day(default).dollars_a_month(Prices()) < 185
    assert calls.transactions / sizing.SECONDS_PER_DAY < 30


def test_every_class_of_request_is_counted() -> None:
    calls = sizing.calls_in_a_day(
        sizing.Load(partitions=1000, batches_per_sec=1, bytes_per_sec=100, following=1)
    )
    assert calls.gathered_puts == 3 * 24 * 60
    assert calls.segment_puts == 1000 * 24 * 2
    assert calls.entry_gets == pytest.approx(8 * sizing.SECONDS_PER_DAY)
    assert min(getattr(calls, one.name) for one in fields(calls)) > 0
    assert calls.puts == pytest.approx(
        sum(getattr(calls, one.name) for one in fields(calls) if one.name.endswith("_puts"))
    )
    silent = sizing.calls_in_a_day(sizing.Load(partitions=1000, batches_per_sec=0, bytes_per_sec=0))
    assert (silent.puts, silent.gets, silent.transactions) == (0, 0, 0)


def test_busy_partitions_are_sealed_by_their_bytes() -> None:
    load = sizing.Load(partitions=3, batches_per_sec=10, bytes_per_sec=10_000)
    assert sizing.seconds_to_seal(load) == 120
    assert sizing.seconds_to_seal(replace(load, bytes_per_sec=1e6)) == 60
    assert sizing.gathered_per_look(replace(load, bytes_per_sec=1e6)) == 0
    assert sizing.look_sec(replace(load, bytes_per_sec=100e6)) < 10


class _LateStore(ControlledStore):
    """Answers every put late, and keeps nothing; `puts`: how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self._latencies = random.Random(7)

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        self.puts += 1
        await asyncio.sleep(self._latencies.lognormvariate(math.log(0.025), 0.7))


@pytest.mark.parametrize("percent", [0, 5, 10, 30, 75, 100])
@pytest.mark.parametrize("entry_bytes", [100, HEDGED_BYTES + 1])
def test_hedged_percentage_of_small_entries_is_sent_twice(percent: int, entry_bytes: int) -> None:
    entries, objects, body = 3000, _LateStore(), bytes(entry_bytes)
    hedge = Hedge(percent / 100) if percent else None
    conditional_put = ConditionalPut(objects, StoreRetries(random.Random(7)), hedge)

    async def put_all() -> None:
        for number in range(entries):
            assert await conditional_put.put(f"entry-{number}", [body])
        await conditional_put.close()

    run_virtually(put_all())
    expected = entries * sizing.puts_per_entry(entry_bytes, percent)
    assert objects.puts - entries == pytest.approx(expected - entries, rel=0.1)


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
            await broker.seal(TOPIC)
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


def test_merging_costs_little_beside_sealing() -> None:
    load = sizing.Load(partitions=100, batches_per_sec=10, bytes_per_sec=10_000)
    busy, off = sizing.calls_in_a_day(load), sizing.calls_in_a_day(load, merges=False)
    assert 0 < busy.merging_puts < 0.5 * busy.segment_puts
    assert (off.merging_puts, off.merging_gets, off.segment_puts) == (0, 0, busy.segment_puts)


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
