"""What is measured: each workload drives one running broker and yields named values."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bench.brokers import Broker
from bench.plan import Plan
from bench.process import machine_cpu, memory
from bench.specs import ConsumeSpec, FramesSpec, Latencies, LatencySpec, ProduceSpec, Spec, Window
from bench.wire import WireError

_ROOT = Path(__file__).resolve().parent.parent
_BYTES_PER_MB = 1e6
_BYTES_PER_GB = 1e9
_DRIVER_TIMEOUT_SECONDS = 600.0
_topic_numbers = count(1)

Values = Iterator[tuple[str, str, float]]  # workload, metric, value


class DriverError(Exception):
    """A driver process failed; the text is its last output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A group of measurements that share one fresh broker."""

    name: str
    run: Callable[[Broker, Plan], Values]
    describes: str
    needs_client: bool = True  # False: runs against the no-op ceiling too
    starts_broker: bool = True  # False: the workload itself starts and stops it


def throughput(broker: Broker, plan: Plan) -> Values:
    """Produce and consume at each record size."""
    _warm_up(broker, plan)
    for record_bytes in plan.record_sizes:
        topic = _new_topic(broker, plan.partitions)
        produced = _drive_window(_produce_spec(broker, plan, topic, record_bytes))
        writeback = _writeback_seconds() / (produced.total_records * record_bytes) * _BYTES_PER_GB
        name = f"produce {record_bytes} B"
        yield from _volume(name, produced, writeback)
        yield name, "peak resident MB", memory(broker.pid).peak_resident_bytes / _BYTES_PER_MB
        for where, volume in (("tail", plan.consume_tail_bytes), ("beginning", plan.consume_begin_bytes)):
            records = min(produced.total_records, volume // record_bytes)
            consumed = _drive_window(_consume_spec(broker, plan, topic, record_bytes, where, records))
            yield from _volume(f"consume {where} {record_bytes} B", consumed, 0.0)
        _drop_topic(broker, topic)


def tiny_requests(broker: Broker, plan: Plan) -> Values:
    """One record to a request: by librdkafka, and by prebuilt frames over one connection."""
    warmup_seconds = max(plan.warmup_seconds, plan.jit_warmup_seconds)
    if broker.speaks_kafka:
        topic = _new_topic(broker, plan.partitions)
        spec = dataclasses.replace(
            _produce_spec(broker, plan, topic, plan.tiny_record_bytes),
            properties=plan.single_record_properties,
            in_flight_records=plan.tiny_in_flight,
            chunk_bytes=plan.tiny_record_bytes * 16,
            warmup_seconds=warmup_seconds,
        )
        yield from _requests("tiny, librdkafka", _drive_window(spec))
        _drop_topic(broker, topic)
    frames = _frames_spec(
        broker, plan, record_bytes=plan.tiny_record_bytes, records=1, in_flight=plan.tiny_in_flight
    )
    frames = dataclasses.replace(frames, warmup_seconds=warmup_seconds)
    yield from _requests("tiny, raw frames", _drive_window(frames))


def large_frames(broker: Broker, plan: Plan) -> Values:
    """Prebuilt frames of about 1 MiB over one connection: bytes, with next to no driver."""
    record_bytes = 1024
    records = plan.large_frame_bytes // (record_bytes + 16)  # a record's own header is up to 16 bytes
    spec = _frames_spec(
        broker, plan, record_bytes=record_bytes, records=records, in_flight=plan.large_frames_in_flight
    )
    yield from _volume("1 MiB frames", _drive_window(spec), 0.0)


def latency(broker: Broker, plan: Plan) -> Values:
    """Acknowledgement of single records at a low rate."""
    topic = _new_topic(broker, 1)
    spec = LatencySpec(
        bootstrap=broker.bootstrap,
        topic=topic,
        record_bytes=plan.record_sizes[0],
        payload=plan.payload,
        per_second=plan.latency_per_second,
        warmup_seconds=3.0,
        seconds=plan.latency_seconds,
        properties=plan.single_record_properties,
    )
    result = _drive(spec)
    assert isinstance(result, Latencies)
    name = f"ack latency at {plan.latency_per_second:g}/s"
    for percent in (50, 99):
        yield name, f"p{percent} ms", _percentile(result.milliseconds, percent)


def rest_and_start(broker: Broker, plan: Plan) -> Values:
    """Start-up time with and without topics, memory and CPU of a broker that has nothing to do."""
    for partitions in plan.startup_partitions:
        topic = f"standing-{partitions}"
        broker.start()
        if partitions:
            with broker.client() as client:
                client.create_topic(topic, partitions)
        broker.stop()
        name = f"start-up, {partitions} partitions"
        serves = partial(_serves, topic=topic, partitions=partitions)
        for _ in range(plan.startup_repeats):
            yield name, "s", broker.start(serves)
            yield from _rest(f"at rest, {partitions} partitions", broker, plan)
            yield name, "stop s", broker.stop()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="throughput", run=throughput, describes="produce and consume MB/s and broker CPU per GB"
        ),
        Workload(
            name="tiny", run=tiny_requests, describes="one-record requests per second", needs_client=False
        ),
        Workload(name="frames", run=large_frames, describes="1 MiB frames, raw socket", needs_client=False),
        Workload(name="latency", run=latency, describes="acknowledgement latency at a low rate"),
        Workload(
            name="rest",
            run=rest_and_start,
            describes="start-up, memory and CPU at rest",
            starts_broker=False,
        ),
    )
}


def _serves(broker: Broker, topic: str, partitions: int) -> bool:
    if not partitions:
        return broker.ready()
    try:
        with broker.client(timeout_seconds=2.0) as client:
            client.api_versions()
            return client.partitions_with_leader(topic) >= partitions
    except (OSError, WireError):
        return False


def _rest(name: str, broker: Broker, plan: Plan) -> Values:
    time.sleep(plan.rest_seconds / 2)
    before = broker.cpu()
    begin = time.perf_counter()
    time.sleep(plan.rest_seconds / 2)
    idle = (broker.cpu() - before) / (time.perf_counter() - begin)
    held = memory(broker.pid)
    yield name, "resident MB", held.resident_bytes / _BYTES_PER_MB
    yield name, "private MB", held.private_bytes / _BYTES_PER_MB
    yield name, "% of a core", idle * 100


def _volume(workload: str, window: Window, writeback_per_gb: float) -> Values:
    gigabytes = window.payload_bytes / _BYTES_PER_GB
    broker = window.broker_user_seconds + window.broker_system_seconds
    yield workload, "MB/s", window.payload_bytes / _BYTES_PER_MB / window.seconds
    yield workload, "records/s", window.records / window.seconds
    yield workload, "broker CPU s/GB", broker / gigabytes
    yield workload, "machine CPU s/GB", window.machine_seconds / gigabytes + writeback_per_gb
    yield from _cores(workload, window)


def _cores(workload: str, window: Window) -> Values:
    """Who used the processors; `other` is neither broker nor driver: kernel threads, or a machine in use."""
    broker = window.broker_user_seconds + window.broker_system_seconds
    yield workload, "broker cores", broker / window.seconds
    yield workload, "driver cores", window.driver_seconds / window.seconds
    yield workload, "other cores", max(0.0, window.machine_seconds - broker) / window.seconds


def _requests(workload: str, window: Window) -> Values:
    """A window in which each request carried one record."""
    broker = window.broker_user_seconds + window.broker_system_seconds
    yield workload, "requests/s", window.records / window.seconds
    yield workload, "broker CPU us/request", broker / window.records * 1e6
    yield from _cores(workload, window)


def _warm_up(broker: Broker, plan: Plan) -> None:
    """Drives a topic that is thrown away, so that a JIT has compiled what is then measured."""
    if not plan.jit_warmup_seconds:
        return
    topic = _new_topic(broker, plan.partitions)
    record_bytes = 1024
    spec = dataclasses.replace(
        _produce_spec(broker, plan, topic, record_bytes), warmup_seconds=0.0, seconds=plan.jit_warmup_seconds
    )
    produced = _drive_window(spec)
    records = min(produced.total_records, plan.consume_tail_bytes // record_bytes)
    _drive_window(_consume_spec(broker, plan, topic, record_bytes, "tail", records))
    _drop_topic(broker, topic)


def _produce_spec(broker: Broker, plan: Plan, topic: str, record_bytes: int) -> ProduceSpec:
    return ProduceSpec(
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=plan.partitions,
        record_bytes=record_bytes,
        payload=plan.payload,
        warmup_seconds=plan.warmup_seconds,
        seconds=plan.seconds,
        broker_pid=broker.pid,
        properties=plan.produce_properties,
        in_flight_bytes=plan.in_flight_bytes,
        in_flight_records=plan.in_flight_records,
        chunk_bytes=plan.chunk_bytes,
    )


def _consume_spec(
    broker: Broker, plan: Plan, topic: str, record_bytes: int, where: str, records: int
) -> ConsumeSpec:
    return ConsumeSpec(
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=plan.partitions,
        record_bytes=record_bytes,
        from_end=where == "tail",
        records=records,
        warmup_passes=1 if where == "tail" else 0,
        passes=plan.consume_passes if where == "tail" else 1,
        broker_pid=broker.pid,
        properties=plan.consume_properties,
    )


def _frames_spec(
    broker: Broker, plan: Plan, *, record_bytes: int, records: int, in_flight: int
) -> FramesSpec:
    host, _colon, port = broker.bootstrap.rpartition(":")
    return FramesSpec(
        host=host,
        port=int(port),
        topic=_new_topic(broker, plan.partitions) if broker.speaks_kafka else "noop",
        partitions=plan.partitions,
        record_bytes=record_bytes,
        records_per_frame=records,
        payload=plan.payload,
        in_flight_frames=in_flight,
        warmup_seconds=plan.warmup_seconds,
        seconds=plan.seconds,
        broker_pid=broker.pid,
    )


def _new_topic(broker: Broker, partitions: int) -> str:
    topic = f"bench-{next(_topic_numbers):04d}"
    with broker.client() as client:
        client.create_topic(topic, partitions)
    return topic


def _drop_topic(broker: Broker, topic: str) -> None:
    with broker.client() as client:
        client.delete_topic(topic)
    os.sync()


def _writeback_seconds() -> float:
    """CPU of the machine while what is dirty goes to disk: kernel threads do it, no process pays."""
    before = machine_cpu()
    os.sync()
    return (machine_cpu() - before).total


def _drive_window(spec: Spec) -> Window:
    result = _drive(spec)
    assert isinstance(result, Window)
    return result


def _drive(spec: Spec) -> Window | Latencies:
    asked = json.dumps({"kind": type(spec).__name__, "spec": dataclasses.asdict(spec)})
    done = subprocess.run(
        [sys.executable, "-m", "bench.driver"],
        input=asked,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=_DRIVER_TIMEOUT_SECONDS,
    )
    if done.returncode:
        raise DriverError(f"{type(spec).__name__}: {done.stderr[-2000:]}")
    answered = json.loads(done.stdout.splitlines()[-1])
    return Latencies(**answered) if isinstance(spec, LatencySpec) else Window(**answered)


def _percentile(ordered: list[float], percent: float) -> float:
    if not ordered:
        raise DriverError("no record was acknowledged in the window")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
