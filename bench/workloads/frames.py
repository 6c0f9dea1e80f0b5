"""Frames of 1 MiB over raw connections, in and out: bytes with next to no driver, the ceiling beside them."""

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import FetchFramesSpec, FramesSpec, Window
from bench.workloads.driver_specs import frames_spec
from bench.workloads.driving import drive
from bench.workloads.rows import volume
from bench.workloads.workload import Stage, Values, Workload, any_peer

PRODUCE_ROW = "produce 1 MiB frames"
FETCH_ROW = "fetch 1 MiB frames, tail"

_RECORD_BYTES = 1024
_RECORD_HEADER_BYTES = 16  # at most, with a length of two bytes


def _frames(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        spec = frames_spec(
            broker,
            plan,
            record_bytes=_RECORD_BYTES,
            records=plan.frame_bytes // (_RECORD_BYTES + _RECORD_HEADER_BYTES),
            in_flight=plan.frames_in_flight,
            warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds / 2),
        )
        yield from volume(PRODUCE_ROW, drive(spec, Window))
        fetched = volume(FETCH_ROW, drive(_fetch_spec(broker, plan, spec), Window))
        yield from (row for row in fetched if row[1] != "records/s")  # bytes are dropped uncounted


def _fetch_spec(broker: Broker, plan: Plan, written: FramesSpec) -> FetchFramesSpec:
    return FetchFramesSpec(
        host=broker.host,
        port=broker.port,
        topic=written.topic,
        start_offsets=_start_offsets(broker, plan, written),
        volume_bytes=plan.consume_tail_bytes,
        fetch_bytes=plan.frame_bytes,
        connections=plan.fetch_connections,
        requests_ahead=plan.fetch_requests_ahead,
        warmup_seconds=written.warmup_seconds,
        seconds=plan.seconds,
        broker_pids=[broker.pid],
    )


def _start_offsets(broker: Broker, plan: Plan, written: FramesSpec) -> list[int]:
    """The approximate start of the newest bytes of each partition."""
    if not broker.speaks_kafka:
        return [0] * written.partitions
    newest = plan.consume_tail_bytes // written.partitions // written.record_bytes
    with broker.client() as client:
        ends = [client.log_end_offset(written.topic, partition) for partition in range(written.partitions)]
    return [max(0, end - newest) for end in ends]


def _seconds(plan: Plan) -> float:
    return 10 + 2 * (max(plan.warmup_seconds, plan.jit_warmup_seconds / 2) + plan.seconds)


FRAMES = Workload(
    name="frames",
    describes="prebuilt 1 MiB Produce frames, and the newest of them fetched in 1 MiB replies",
    run=_frames,
    fits=any_peer,
    seconds=_seconds,
    limited_by="the kernel's copies to and from the sockets: fetched bytes are copied once and dropped",
)
