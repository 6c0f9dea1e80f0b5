"""Share groups (KIP-932): members fetch and acknowledge, with all records accepted, and with every other released."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import Broker
from bench.cluster_stores import cluster_stores
from bench.payloads import record_pool
from bench.plan import Plan
from bench.specs import Shared, ShareGroupSpec
from bench.wire import WireError, produce_error_position, produce_frame
from bench.workloads.driving import drive
from bench.workloads.rows import cores, percentile
from bench.workloads.topics import new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_FRAMES_AT_ONCE = 200


def _share_groups(stage: Stage) -> Values:
    with _running(stage) as broker:
        yield from _measure(broker, stage.plan, "")
    if stage.peer.is_kafscale:
        with (
            tempfile.TemporaryDirectory(prefix="kafscale-share-", dir=stage.work_dir) as folder,
            cluster_stores(Path(folder)) as stores,
            stage.running_broker(stores.settings) as broker,
        ):
            yield from _measure(broker, stage.plan, " on etcd and S3")


@contextmanager
def _running(stage: Stage) -> Iterator[Broker]:
    """The peer's broker, or the one that it has for share groups."""
    make = stage.peer.of_share_groups
    if make is None:
        with stage.running_broker() as broker:
            yield broker
        return
    broker = make(stage.work_dir)
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


def share_row(plan: Plan, *, releases: bool = False, where: str = "") -> str:
    """The row's name in the report."""
    how = "every other record released once" if releases else "all accepted"
    return f"share group of {plan.share_members} members, {how}{where}"


def _measure(broker: Broker, plan: Plan, where: str) -> Values:
    for releases in (False, True):
        topic = new_topic(broker, plan.partitions)
        written = _write(broker, plan, topic)
        spec = ShareGroupSpec(
            host=broker.host,
            port=broker.port,
            group=f"{topic}-group",
            topic=topic,
            partitions=plan.partitions,
            records=written,
            record_bytes=plan.tiny_record_bytes,
            members=plan.share_members,
            max_records=plan.share_max_records,
            releases_every_other=releases,
            warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds),
            seconds=plan.seconds,
            broker_pids=[broker.pid],
        )
        yield from _rows(share_row(plan, releases=releases, where=where), drive(spec, Shared))


def _write(broker: Broker, plan: Plan, topic: str) -> int:
    """Whole batches to all partitions in turn; returns the number of records."""
    values = record_pool(plan.payload, plan.tiny_record_bytes)[: plan.share_batch_records]
    frames = [produce_frame(topic, index, values, correlation_id=index) for index in range(plan.partitions)]
    rounds = max(1, plan.share_records // (len(values) * len(frames)))
    with broker.client() as client:
        error_at = produce_error_position(client.exchange(frames[0]))
        left = rounds * len(frames)
        while left:
            sent = [frames[at % len(frames)] for at in range(min(left, _FRAMES_AT_ONCE * len(frames)))]
            for reply in client.exchange_all(sent):
                if any(reply[error_at : error_at + 2]):
                    raise WireError(f"a Produce to {topic} carries an error code")
            left -= len(sent)
    return (rounds * len(frames) + 1) * len(values)


def _rows(row: str, measured: Shared) -> Values:
    window = measured.window
    if not measured.acknowledgements:
        raise WireError(f"{row}: nothing came back in the window")
    yield row, "records/s", window.records / window.seconds
    yield row, "acknowledgements/s", measured.acknowledgements / window.seconds
    yield row, "broker CPU us/acknowledgement", window.broker_seconds / measured.acknowledgements * 1e6
    yield row, "broker CPU us/record", window.broker_seconds / max(1, window.records) * 1e6
    for percent in (50, 99):
        yield row, f"acknowledgement p{percent} ms", percentile(measured.milliseconds, percent)
    yield from cores(row, window)


def _seconds(plan: Plan) -> float:
    window = max(plan.warmup_seconds, plan.jit_warmup_seconds) + plan.seconds
    return 20 + 3 * (window + plan.share_records / 500_000)


SHARE_GROUPS = Workload(
    name="share-groups",
    describes="members of a share group fetch and acknowledge as fast as they can",
    run=_share_groups,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="the driver, in Python: 0.2 ms of each fetch with its acknowledgement, and 2 us of each range",
)
