"""Every workload, as short as can be: it runs to its end, and has the rows that the report and the goals look for."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import PEERS
from bench.plan import Plan, quick_plan
from bench.run import expected_seconds, run
from bench.workloads.driving import DriverError
from bench.workloads.registry import WORKLOADS
from bench.workloads.workload import Stage, Values
from tests.support.etcd_install import etcd_missing
from tests.support.nightly import nightly_but
from tests.support.s3_install import s3_server_missing

_KIB = 1024
_ON_STORES = ("partitions", "share-groups", "transactions", "cluster", "durable")


def _plan() -> Plan:
    return quick_plan(
        payload="random",
        record_sizes=(_KIB,),
        partition_counts=(2,),
        partitions=2,
        warmup_seconds=0.1,
        seconds=0.4,
        jit_warmup_seconds=0.1,
        consume_tail_bytes=_KIB * _KIB,
        consume_cold_bytes=_KIB * _KIB,
        consume_passes=1,
        tiny_in_flight=100,
        latency_seconds=0.5,
        latency_per_second=50.0,
        settle_seconds=0.1,
        rest_seconds=0.2,
        limited_batch_bytes=(16 * _KIB,),
        limited_partitions=(2,),
        limited_lingers_ms=(0,),
        standing_partitions=(0, 3),
        connections=10,
        connection_partitions=5,
        partitions_of_a_poll=2,
        poll_waits_ms=(100,),
        poll_seconds=0.3,
        group_members=3,
        group_rebalances=2,
        consumer_members=4,
        consumer_partitions=8,
        consumer_interval_seconds=0.05,
        share_members=3,
        share_records=1_000_000,
        transaction_producers=5,
        transaction_source_bytes=_KIB * _KIB,
        cluster_brokers=(1,),
        cluster_partitions=2,
        durable_rates=(50.0,),
        durable_intervals_ms=(0,),
        durable_seconds=1.0,
        durable_many_partitions=3,
    )


_ROWS = {
    "throughput": {("produce 1024 B, 2 partitions", "MB/s"), ("consume tail 1024 B, 2 partitions", "MB/s")},
    "cold": {("consume cold 1024 B, 2 partitions", "broker CPU s/GB")},
    "tiny": {("tiny requests, librdkafka", "requests/s"), ("tiny requests, raw frames", "requests/s")},
    "frames": {("produce 1 MiB frames", "MB/s"), ("fetch 1 MiB frames, tail", "MB/s")},
    "latency": {("ack latency at 50/s", "p99 ms")},
    "limited": {("5 in flight, 16 KiB batches, 2 partitions, linger 0 ms", "MB/s")},
    "partitions": {
        ("start-up, 3 partitions", "s"),
        ("start-up on etcd and S3, 3 partitions", "s"),
        ("at rest, 0 partitions", "resident MB"),
        ("Metadata of 3 partitions", "broker CPU us/request"),
    },
    "connections": {
        ("10 idle connections, 5 partitions", "resident KB/connection"),
        ("10 idle long polls of 0.1 s, 5 partitions", "% of a core"),
    },
    "groups": {("rebalance of 3 members", "ms"), ("heartbeats, one connection", "requests/s")},
    "consumer-groups": {
        ("4 members join one consumer group", "broker CPU ms/member"),
        ("consumer heartbeats of 4 members", "requests/s"),
        ("100,000 consumer heartbeats a minute", "p99 ms"),
    },
    "share-groups": {
        ("share group of 3 members, all accepted", "acknowledgements/s"),
        ("share group of 3 members, every other record released once", "broker CPU us/record"),
        ("share group of 3 members, all accepted on etcd and S3", "acknowledgement p99 ms"),
    },
    "transactions": {
        ("read-process-write, commit every 100 ms", "MB/s"),
        ("read-process-write, commit every 100 ms", "commit p99 ms"),
        ("transactions of 5 producers embedded", "transactions/s"),
        ("transactions of 5 producers on etcd and S3", "metadata transactions each"),
    },
    "cluster": {
        ("1 broker, produce 1024 B", "etcd and S3 CPU s/GB"),
        ("1 broker, consume tail 1024 B", "MB/s"),
    },
    "durable": {
        ("durable, flush interval 0 ms, 1 partition, 50/s", "ack p99 / PUT p99"),
        ("durable, flush interval 0 ms, 3 partitions, 50/s", "requests USD/month"),
        ("durable, flush interval 0 ms, 1 partition, 50/s", "metadata transactions/flush"),
        ("durable, flush interval 0 ms, 3 partitions, 50/s", "metadata transactions/flush"),
        ("durable, flush interval 0 ms, one PUT in ten twice, 1 partition, 50/s", "ack p50 / PUT p50"),
    },
}


@pytest.mark.parametrize("name", nightly_but(WORKLOADS))
def test_a_workload_measures_what_its_rows_say(name: str, tmp_path: Path) -> None:
    if name in _ON_STORES and (etcd_missing() or s3_server_missing()):
        pytest.skip(etcd_missing() or s3_server_missing() or "")
    # On a busy machine less than half a second can pass without one reply, which the measurement refuses.
    for times in (1, 5, 25):
        said: list[str] = []
        plan = _plan()
        longer = replace(plan, seconds=times * plan.seconds, latency_seconds=times * plan.latency_seconds)
        outcome = run([PEERS["kafscale-flush0"]], [WORKLOADS[name]], longer, 1, tmp_path, said.append)
        if not any("in the window" in failure for failure in outcome.failures):
            break
    assert outcome.failures == []
    measured = {(one.workload, one.metric): one.value for one in outcome.measurements}
    assert measured.keys() >= _ROWS[name]
    assert all(measured[row] >= 0 for row in _ROWS[name])
    assert list(outcome.seconds) == [name]
    assert said[-1].startswith(f"repeat 1/1  {name}  kafscale-flush0: done in")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_only_prebuilt_frames_are_measured_of_the_ceiling(tmp_path: Path) -> None:
    workloads = list(WORKLOADS.values())
    outcome = run([PEERS["noop"]], workloads, _plan(), 2, tmp_path, lambda line: None)
    assert outcome.failures == []
    assert {one.workload for one in outcome.measurements} == {
        "tiny requests, raw frames", "produce 1 MiB frames", "fetch 1 MiB frames, tail"
    }  # fmt: skip
    assert {one.repeat for one in outcome.measurements} == {1, 2}


def test_results_before_failure_or_interrupt_are_kept(tmp_path: Path) -> None:
    def fails(stage: Stage) -> Values:
        yield "row", "metric", 1.0
        raise DriverError("the driver has ended")

    def is_interrupted(stage: Stage) -> Values:
        yield "row", "metric", 2.0
        raise KeyboardInterrupt

    first, second = (
        replace(WORKLOADS["tiny"], name=work.__name__, run=work) for work in (fails, is_interrupted)
    )
    outcome = run([PEERS["noop"]], [first, second], _plan(), 3, tmp_path, lambda line: None)
    assert [(one.value, one.repeat) for one in outcome.measurements] == [(1.0, 1), (2.0, 1)]
    assert outcome.failures[0] == "repeat 1/3  fails  noop: DriverError: the driver has ended"
    assert outcome.failures[1].startswith("interrupted")


def test_run_time_sums_only_the_workloads_peers() -> None:
    plan = Plan(payload="random")
    durable, tiny = WORKLOADS["durable"], WORKLOADS["tiny"]
    peers = [PEERS["kafscale"], PEERS["kafka"], PEERS["noop"]]
    expected = expected_seconds(peers, [durable, tiny], plan, 3)
    assert expected == {"durable": 3 * durable.seconds(plan), "tiny": 9 * tiny.seconds(plan)}
