"""Transactions: read-process-write that commits every 100 ms, and as many small ones as one coordinator takes."""

import dataclasses
import tempfile
from pathlib import Path

from bench.broker_counts import flush_counts
from bench.brokers import Broker
from bench.cluster_stores import cluster_stores
from bench.kafscale_broker import Kafscale
from bench.plan import Plan
from bench.specs import CopySpec, Transacted, TransactionsSpec, Window
from bench.workloads.driver_specs import produce_spec
from bench.workloads.driving import drive
from bench.workloads.rows import cores, percentile, volume
from bench.workloads.topics import new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

METADATA_WRITES = "metadata transactions each"
_RECORD_BYTES = 1024


def _transactions(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        yield from _copy(broker, plan)
        yield from _small_ones(broker, plan, "embedded" if stage.peer.is_kafscale else "")
    if stage.peer.is_kafscale:
        with (
            tempfile.TemporaryDirectory(prefix="kafscale-transactions-", dir=stage.work_dir) as folder,
            cluster_stores(Path(folder)) as stores,
            stage.running_broker(stores.settings) as broker,
        ):
            yield from _small_ones(broker, plan, "on etcd and S3")


def copy_row(plan: Plan) -> str:
    """The row's name in the report."""
    return f"read-process-write, commit every {plan.transaction_commit_ms} ms"


def small_row(plan: Plan, where: str = "") -> str:
    """The row's name in the report."""
    return f"transactions of {plan.transaction_producers} producers{where and ' ' + where}"


def _copy(broker: Broker, plan: Plan) -> Values:
    source, target = new_topic(broker, plan.partitions), new_topic(broker, plan.partitions)
    filling = dataclasses.replace(
        produce_spec(broker, plan, source, plan.partitions, _RECORD_BYTES),
        warmup_seconds=0.0,
        seconds=plan.write_timeout_seconds,
        at_most_records=plan.transaction_source_bytes // _RECORD_BYTES,
    )
    drive(filling, Window)
    with broker.client() as client:
        ends = [client.log_end_offset(source, partition) for partition in range(plan.partitions)]
    spec = CopySpec(
        bootstrap=broker.driver_bootstrap,
        source=source,
        target=target,
        ends=ends,
        record_bytes=_RECORD_BYTES,
        commit_ms=plan.transaction_commit_ms,
        warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds),
        seconds=plan.seconds,
        broker_pids=[broker.pid],
        producer_properties={
            **broker.driver_properties, "transactional.id": f"{target}-copy", "linger.ms": "5",
        },
        consumer_properties={
            **plan.consume_properties, **broker.driver_properties, "group.id": f"{target}-group",
            "isolation.level": "read_committed", "auto.offset.reset": "error",
        },
    )  # fmt: skip
    copied = drive(spec, Transacted)
    row = copy_row(plan)
    yield from volume(row, copied.window)
    yield from _times(row, "commit", copied)


def _small_ones(broker: Broker, plan: Plan, where: str) -> Values:
    spec = TransactionsSpec(
        host=broker.host,
        port=broker.port,
        topic=new_topic(broker, plan.partitions),
        partitions=plan.partitions,
        producers=plan.transaction_producers,
        record_bytes=plan.tiny_record_bytes,
        payload=plan.payload,
        warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds),
        seconds=plan.seconds,
        broker_pids=[broker.pid],
    )
    counted = flush_counts(broker) if isinstance(broker, Kafscale) else None
    measured = drive(spec, Transacted)
    row, window = small_row(plan, where), measured.window
    yield row, "transactions/s", window.records / window.seconds
    yield row, "broker CPU us each", window.broker_seconds / max(1, window.records) * 1e6
    yield from _times(row, "transaction", measured)
    yield row, "asked again each", measured.asked_again / window.total_records
    if isinstance(broker, Kafscale) and counted is not None:
        yield row, METADATA_WRITES, (flush_counts(broker) - counted).transactions / window.total_records
    yield from cores(row, window)


def _times(row: str, what: str, measured: Transacted) -> Values:
    for percent in (50, 99):
        yield row, f"{what} p{percent} ms", percentile(measured.milliseconds, percent)


def _seconds(plan: Plan) -> float:
    window = max(plan.warmup_seconds, plan.jit_warmup_seconds) + plan.seconds
    return 15 + 3 * window


TRANSACTIONS = Workload(
    name="transactions",
    describes="read-process-write that commits every 100 ms; small transactions, as many as one coordinator takes",
    run=_transactions,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="copying: confluent-kafka's Python, about 2 us a record; small ones: the driver, 0.15 ms of each",
)
