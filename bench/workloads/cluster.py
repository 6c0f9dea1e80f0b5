"""One broker and three, on stores of their own: Kafscale on etcd and S3, Kafka with as many replicas as nodes."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.apache_kafka import kafka_nodes
from bench.brokers import Broker
from bench.cluster_stores import cluster_stores
from bench.kafscale_broker import Kafscale
from bench.plan import Plan
from bench.process import process_trees_cpu
from bench.specs import ConsumeSpec, ProduceSpec, Window
from bench.workloads.driver_specs import produce_spec, tail_spec
from bench.workloads.driving import drive
from bench.workloads.rows import BYTES_PER_GB, volume
from bench.workloads.topics import drop_topic, new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_RECORD_BYTES = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """A cluster that is ready. `stores`: process ids of its stores, none for Kafka."""

    brokers: Sequence[Broker]
    stores: Sequence[int]
    replicas: int


def _cluster(stage: Stage) -> Values:
    for count in stage.plan.cluster_brokers:
        with _running(stage, count) as running:
            _warm_up(running, stage.plan)
            yield from _measure(running, stage.plan, f"{count} broker{'s' if count > 1 else ''}")


def _measure(running: _Running, plan: Plan, brokers: str) -> Values:
    topic = new_topic(running.brokers[0], plan.cluster_partitions, running.replicas)
    produced, stores_cpu = _drive(running, _produce(running, plan, topic))
    name = f"{brokers}, produce {_RECORD_BYTES} B"
    yield from volume(name, produced)
    if running.stores:
        gigabytes = produced.total_records * _RECORD_BYTES / BYTES_PER_GB
        yield name, "etcd and S3 CPU s/GB", stores_cpu / gigabytes
    consume = tail_spec(
        running.brokers[0], plan, topic, plan.cluster_partitions, _RECORD_BYTES, produced.total_records
    )
    consumed, _ = _drive(running, consume)
    yield from volume(f"{brokers}, consume tail {_RECORD_BYTES} B", consumed)


def _drive(running: _Running, spec: ProduceSpec | ConsumeSpec) -> tuple[Window, float]:
    """The brokers' counters together, and the stores' CPU seconds in the same time."""
    pids = [broker.pid for broker in running.brokers]
    bootstrap = ",".join(broker.bootstrap for broker in running.brokers)
    before = process_trees_cpu(running.stores).total
    window = drive(dataclasses.replace(spec, broker_pids=pids, bootstrap=bootstrap), Window)
    return window, process_trees_cpu(running.stores).total - before


def _produce(running: _Running, plan: Plan, topic: str) -> ProduceSpec:
    return produce_spec(running.brokers[0], plan, topic, plan.cluster_partitions, _RECORD_BYTES)


def _warm_up(running: _Running, plan: Plan) -> None:
    topic = new_topic(running.brokers[0], plan.cluster_partitions, running.replicas)
    spec = _produce(running, plan, topic)
    seconds = plan.jit_warmup_seconds * len(running.brokers)
    _drive(running, dataclasses.replace(spec, warmup_seconds=0.0, seconds=seconds))
    drop_topic(running.brokers[0], topic)


@contextmanager
def _running(stage: Stage, count: int) -> Iterator[_Running]:
    with ExitStack() as stack:
        brokers: Sequence[Broker]
        stores: list[int] = []
        if stage.peer.is_kafscale:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kafscale-cluster-", dir=stage.work_dir)
            )
            found = stack.enter_context(cluster_stores(Path(folder)))
            settings = {**found.settings, **stage.peer.settings}
            stores = found.pids
            brokers = [
                Kafscale(stage.work_dir, {**settings, "KAFSCALE_BROKER_ID": str(number)})
                for number in range(1, count + 1)
            ]
        else:
            brokers = kafka_nodes(stage.work_dir, count)
        for broker in brokers:
            stack.callback(broker.remove)
        for broker in brokers:
            stack.callback(
                broker.kill
            )  # all of them first: the last of Kafka's nodes would wait for the others
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.wait_until_up()
        yield _Running(brokers=brokers, stores=stores, replicas=1 if stage.peer.is_kafscale else count)


def _seconds(plan: Plan) -> float:
    each = 20 + 2 * plan.jit_warmup_seconds + plan.warmup_seconds + plan.seconds + plan.consume_passes
    return each * len(plan.cluster_brokers)


CLUSTER = Workload(
    name="cluster",
    describes="1 and 3 brokers with stores of a cluster: produce and consume MB/s, CPU of all brokers per GB",
    run=_cluster,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="two cores that brokers, stores and driver share: compare the CPU per GB",
)
