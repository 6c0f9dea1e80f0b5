"""One record to a request: by librdkafka, and by prebuilt frames over one connection."""

import dataclasses

from bench.plan import Plan
from bench.specs import Window
from bench.workloads.driver_specs import frames_spec, produce_spec
from bench.workloads.driving import drive
from bench.workloads.rows import requests
from bench.workloads.topics import drop_topic, new_topic
from bench.workloads.workload import Stage, Values, Workload, any_peer

_RECORDS_OF_A_CALL = 16


def _tiny(stage: Stage) -> Values:
    plan = stage.plan
    size = plan.tiny_record_bytes
    warmup_seconds = max(plan.warmup_seconds, plan.jit_warmup_seconds)
    with stage.running_broker() as broker:
        if broker.speaks_kafka:
            topic = new_topic(broker, plan.partitions)
            spec = dataclasses.replace(
                produce_spec(broker, plan, topic, plan.partitions, size),
                properties=plan.single_record_properties,
                in_flight_records=plan.tiny_in_flight,
                chunk_bytes=size * _RECORDS_OF_A_CALL,
                warmup_seconds=warmup_seconds,
            )
            yield from requests("tiny requests, librdkafka", drive(spec, Window))
            drop_topic(broker, topic)
        frames = frames_spec(
            broker,
            plan,
            record_bytes=size,
            records=1,
            in_flight=plan.tiny_in_flight,
            warmup_seconds=warmup_seconds,
        )
        yield from requests("tiny requests, raw frames", drive(frames, Window))


def _seconds(plan: Plan) -> float:
    return 10 + 2 * (max(plan.warmup_seconds, plan.jit_warmup_seconds) + plan.seconds)


TINY = Workload(
    name="tiny",
    describes="produce requests of one small record: how many per second, broker CPU for each",
    run=_tiny,
    fits=any_peer,
    seconds=_seconds,
    limited_by="raw frames: the kernel's sockets, a tenth of a core; librdkafka: a core at 50,000 requests or so",
)
