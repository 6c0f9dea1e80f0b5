"""Idle partitions: start-up, memory, CPU at rest, and the cost of Metadata."""

import tempfile
import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

from bench.brokers import Broker
from bench.cluster_stores import cluster_stores
from bench.plan import Plan
from bench.process import memory
from bench.specs import Repeated, RepeatSpec
from bench.wire import WireError, metadata_frame
from bench.workloads.driving import drive
from bench.workloads.rows import BYTES_PER_MB, percentile
from bench.workloads.topics import new_topics
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

EMBEDDED, CLUSTER = "", " on etcd and S3"
"""The name of the stores in rows: Kafka has only the first."""


def start_row(partitions: int, stores: str = EMBEDDED) -> str:
    """The name of a row of a start."""
    return f"start-up{stores}, {partitions:,} partitions"


def rest_row(partitions: int, stores: str = EMBEDDED) -> str:
    """The name of a row of a broker at rest."""
    return f"at rest{stores}, {partitions:,} partitions"


def _standing(stage: Stage) -> Values:
    for partitions in stage.plan.standing_partitions:
        with stage.running_broker() as broker:
            topics = yield from _created(broker, partitions, EMBEDDED)
            yield from _started_again(broker, stage.plan, topics, partitions, EMBEDDED)
            if partitions:
                yield from _metadata(broker, stage.plan, topics, partitions)
        if stage.peer.is_kafscale:
            yield from _on_cluster_stores(stage, partitions)


def _on_cluster_stores(stage: Stage, partitions: int) -> Values:
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-standing-", dir=stage.work_dir) as folder,
        cluster_stores(Path(folder)) as stores,
        stage.running_broker(stores.settings) as broker,
    ):
        topics = yield from _created(broker, partitions, CLUSTER)
        yield from _started_again(broker, stage.plan, topics, partitions, CLUSTER)


def _created(
    broker: Broker, partitions: int, stores: str
) -> Generator[tuple[str, str, float], None, Sequence[str]]:
    """The topics."""
    begin = time.perf_counter()
    topics = new_topics(broker, partitions)
    if partitions:
        yield f"create{stores}, {partitions:,} partitions", "s", time.perf_counter() - begin
    return topics


def _started_again(broker: Broker, plan: Plan, topics: Sequence[str], partitions: int, stores: str) -> Values:
    for _ in range(plan.startup_repeats):
        broker.stop()
        yield start_row(partitions, stores), "s", broker.start(partial(serves, topics, partitions))
        yield from _rest(rest_row(partitions, stores), broker, plan)


def serves(topics: Sequence[str], partitions: int, broker: Broker) -> bool:
    """True if ApiVersions and Metadata are answered, and all partitions have leaders."""
    if not topics:
        return broker.ready()
    try:
        with broker.client(timeout_seconds=10.0) as client:
            client.api_versions()
            return client.partitions_with_leader(*topics) >= partitions
    except (OSError, WireError):
        return False


def _rest(name: str, broker: Broker, plan: Plan) -> Values:
    time.sleep(plan.settle_seconds)
    before = broker.cpu()
    begin = time.perf_counter()
    time.sleep(plan.rest_seconds)
    idle = (broker.cpu() - before) / (time.perf_counter() - begin)
    held = memory(broker.pid)
    yield name, "resident MB", held.resident_bytes / BYTES_PER_MB
    yield name, "private MB", held.private_bytes / BYTES_PER_MB
    yield name, "% of a core", idle * 100


def _metadata(broker: Broker, plan: Plan, topics: Sequence[str], partitions: int) -> Values:
    """All topics in one Metadata request, one request after the other."""
    spec = RepeatSpec(
        host=broker.host,
        port=broker.port,
        frame=metadata_frame(topics).hex(),
        in_flight=1,
        warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds / 2),
        seconds=plan.seconds / 2,
        broker_pids=[broker.pid],
    )
    measured = drive(spec, Repeated)
    name = f"Metadata of {partitions:,} partitions"
    yield name, "p50 ms", percentile(measured.milliseconds, 50)
    yield name, "p99 ms", percentile(measured.milliseconds, 99)
    yield name, "broker CPU us/request", measured.window.broker_seconds / measured.window.records * 1e6
    yield name, "reply KB", measured.reply_bytes / 1e3


def _seconds(plan: Plan) -> float:
    each = (
        (4 + plan.settle_seconds + plan.rest_seconds) * plan.startup_repeats
        + plan.jit_warmup_seconds / 2
        + plan.seconds / 2
    )
    return sum(2 * each + 8 + 0.004 * partitions for partitions in plan.standing_partitions)


STANDING = Workload(
    name="partitions",
    describes="no, 1,000 and 10,000 partitions: start-up, memory and CPU at rest, Metadata",
    run=_standing,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="Metadata: one request at a time; the driver counts bytes and decodes nothing",
)
