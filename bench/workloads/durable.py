"""Durable acknowledgement over a bucket with a distant one's latency: its time, its requests, their price."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.broker_counts import flush_counts
from bench.bucket_latency import LateBucket
from bench.cluster_stores import ClusterStores, cluster_stores, late_bucket
from bench.kafscale_broker import Kafscale
from bench.plan import Plan
from bench.specs import Latencies, PacedSpec
from bench.workloads.driving import drive
from bench.workloads.rows import percentile
from bench.workloads.topics import new_topic
from bench.workloads.workload import Stage, Values, Workload, only_kafscale
from kafscale.ops.prices import Operation, Prices

ACK_P50, ACK_P99 = "ack p50 / PUT p50", "ack p99 / PUT p99"
TRANSACTIONS = "metadata transactions/flush"
SELDOM_TWICE = ", one PUT in ten twice"
"""In the name of a row: only PUTs that are late are sent twice, as with other flush intervals. By default all are."""

_CONNECTIONS = 8
_WARM_UP_SECONDS = 2.0
_SECONDS_PER_MONTH = 730 * 3600
_PRICES = Prices()
_DOLLARS_PER_PUT = _PRICES.of_request(Operation.PUT_OBJECT)
_DOLLARS_PER_GET = _PRICES.of_request(Operation.GET_OBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Requests of one small record each, at a rate, over so many partitions in turn.

    `is_seldom_hedged`: one PUT in ten is sent twice, whatever is the default of that interval.
    """

    interval_ms: int
    is_seldom_hedged: bool
    partitions: int
    per_second: float

    @property
    def row(self) -> str:
        partitions = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        twice = SELDOM_TWICE if self.is_seldom_hedged else ""
        return f"durable, flush interval {self.interval_ms} ms{twice}, {partitions}, {self.per_second:g}/s"


def _durable(stage: Stage) -> Values:
    plan = stage.plan
    with tempfile.TemporaryDirectory(prefix="kafscale-durable-", dir=stage.work_dir) as folder:
        for interval_ms, is_seldom_hedged in _manners(plan):
            loads = [
                _Load(
                    interval_ms=interval_ms,
                    is_seldom_hedged=is_seldom_hedged,
                    partitions=partitions,
                    per_second=rate,
                )
                for partitions, rate in (
                    *((1, rate) for rate in plan.durable_rates),
                    (plan.durable_many_partitions, max(plan.durable_rates)),
                )
            ]
            with (
                cluster_stores(Path(folder) / f"{interval_ms}-{is_seldom_hedged}") as stores,
                late_bucket(stores) as (bucket, late),
            ):
                yield from _with_loads(stage, bucket, late, loads)


def _manners(plan: Plan) -> list[tuple[int, bool]]:
    """The flush intervals, and whether but one PUT in ten is sent twice where by default all are."""
    return [*((interval_ms, False) for interval_ms in plan.durable_intervals_ms), (0, True)]


def _with_loads(stage: Stage, bucket: LateBucket, stores: ClusterStores, loads: list[_Load]) -> Values:
    settings = {**stores.settings, "KAFSCALE_FLUSH_INTERVAL_MS": str(loads[0].interval_ms)}
    if loads[0].is_seldom_hedged:
        settings["KAFSCALE_S3_HEDGED_PUTS_PERCENT"] = "10"
    with stage.running_broker(settings) as broker:
        assert isinstance(broker, Kafscale)
        for load in loads:
            yield from _measure(broker, bucket, stage.plan, load)


def _measure(broker: Kafscale, bucket: LateBucket, plan: Plan, load: _Load) -> Values:
    spec = _spec(broker, plan, load)
    counted, billed, puts_done = flush_counts(broker), bucket.bill(), bucket.puts_done
    cpu, began = broker.cpu(), time.perf_counter()
    acks = drive(spec, Latencies)
    used, elapsed = broker.cpu() - cpu, time.perf_counter() - began
    counted, billed = flush_counts(broker) - counted, bucket.bill() - billed
    loaded_seconds = acks.total_records / load.per_second
    puts_per_sec, gets_per_sec = billed.puts / loaded_seconds, billed.gets / loaded_seconds
    dollars_per_sec = puts_per_sec * _DOLLARS_PER_PUT + gets_per_sec * _DOLLARS_PER_GET
    put_ms = bucket.put_milliseconds(puts_done)
    for percent, metric in ((50, ACK_P50), (99, ACK_P99)):
        ack, put = percentile(acks.milliseconds, percent), percentile(put_ms, percent)
        yield load.row, f"ack p{percent} ms", ack
        yield load.row, f"PUT p{percent} ms", put
        yield load.row, metric, ack / put
    yield load.row, "flushes/s", counted.flushes / loaded_seconds
    yield load.row, "PUTs/s", puts_per_sec
    yield load.row, "GETs/s", gets_per_sec
    yield load.row, "requests USD/month", dollars_per_sec * _SECONDS_PER_MONTH
    yield load.row, TRANSACTIONS, counted.transactions / counted.flushes
    yield load.row, "broker % of a core", used / elapsed * 100


def _spec(broker: Kafscale, plan: Plan, load: _Load) -> PacedSpec:
    return PacedSpec(
        host=broker.host,
        port=broker.port,
        topic=new_topic(broker, load.partitions),
        partitions=load.partitions,
        record_bytes=plan.tiny_record_bytes,
        payload=plan.payload,
        per_second=load.per_second,
        connections=_CONNECTIONS,
        warmup_seconds=_WARM_UP_SECONDS,
        seconds=plan.durable_seconds,
    )


def _seconds(plan: Plan) -> float:
    manners = len(_manners(plan))
    loads = (len(plan.durable_rates) + 1) * manners
    return 8 * manners + loads * (plan.durable_seconds + _WARM_UP_SECONDS + 2)


DURABLE = Workload(
    name="durable",
    describes="acknowledgement over a late bucket at several rates; PUTs and GETs counted and priced",
    run=_durable,
    fits=only_kafscale,
    seconds=_seconds,
    limited_by="the proxy before the bucket, in Python: 700 requests a second on two cores",
)
