"""Acknowledgement of single records at a low rate."""

from bench.plan import Plan
from bench.specs import Latencies, LatencySpec
from bench.workloads.driving import drive
from bench.workloads.rows import percentile
from bench.workloads.topics import new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_WARM_UP_SECONDS = 3.0


def _latency(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        spec = LatencySpec(
            bootstrap=broker.driver_bootstrap,
            topic=new_topic(broker, 1),
            record_bytes=plan.tiny_record_bytes,
            payload=plan.payload,
            per_second=plan.latency_per_second,
            warmup_seconds=_WARM_UP_SECONDS,
            seconds=plan.latency_seconds,
            properties={**plan.single_record_properties, **broker.driver_properties},
        )
        measured = drive(spec, Latencies).milliseconds
        name = f"ack latency at {plan.latency_per_second:g}/s"
        for percent in (50, 99):
            yield name, f"p{percent} ms", percentile(measured, percent)


def _seconds(plan: Plan) -> float:
    return 8 + _WARM_UP_SECONDS + plan.latency_seconds


LATENCY = Workload(
    name="latency",
    describes="acknowledgement of single records at a low rate",
    run=_latency,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="nothing at this rate; librdkafka takes about 0.1 ms of each",
)
