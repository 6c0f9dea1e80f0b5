"""A group of the consumer protocol (KIP-848): 1,000 members join at once, then their heartbeats."""

from bench.plan import Plan
from bench.specs import ConsumerGroupSpec, GroupBeats
from bench.workloads.driving import drive
from bench.workloads.rows import cores, percentile, requests
from bench.workloads.topics import new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_GROUP = "bench-consumers"
_SETTLE_SECONDS = 0.5
_JOIN_TIMEOUT_SECONDS = 240.0


def _consumer_groups(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        spec = ConsumerGroupSpec(
            host=broker.host,
            port=broker.port,
            group=_GROUP,
            topic=new_topic(broker, plan.consumer_partitions),
            partitions=plan.consumer_partitions,
            members=plan.consumer_members,
            interval_seconds=plan.consumer_interval_seconds,
            join_timeout_seconds=_JOIN_TIMEOUT_SECONDS,
            paced_per_second=plan.consumer_heartbeats_per_minute / 60,
            warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds),
            settle_seconds=_SETTLE_SECONDS,
            seconds=plan.seconds,
            broker_pids=[broker.pid],
        )
        yield from _rows(plan, drive(spec, GroupBeats))


def join_row(plan: Plan) -> str:
    """The row's name in the report."""
    return f"{plan.consumer_members:,} members join one consumer group"


def paced_row(plan: Plan) -> str:
    """The row's name in the report."""
    return f"{plan.consumer_heartbeats_per_minute:,} consumer heartbeats a minute"


def _rows(plan: Plan, measured: GroupBeats) -> Values:
    joined, row = measured.joined, join_row(plan)
    yield row, "s until all have their target", joined.seconds
    yield row, "members/s", joined.records / joined.seconds
    yield row, "broker CPU ms/member", joined.broker_seconds / joined.records * 1e3
    yield row, "heartbeats/member", measured.beats_of_joins / joined.records
    yield from cores(row, joined)
    yield from requests(f"consumer heartbeats of {plan.consumer_members:,} members", measured.fast)
    paced, row = measured.paced, paced_row(plan)
    yield row, "% of a core", paced.broker_seconds / paced.seconds * 100
    yield row, "broker CPU us/request", paced.broker_seconds / paced.records * 1e6
    for percent in (50, 99):
        yield row, f"p{percent} ms", percentile(measured.milliseconds, percent)
    yield from cores(row, paced)


def _seconds(plan: Plan) -> float:
    joins = 2 * (2 + 0.01 * plan.consumer_members)
    return 12 + joins + max(plan.warmup_seconds, plan.jit_warmup_seconds) + 2 * plan.seconds


CONSUMER_GROUPS = Workload(
    name="consumer-groups",
    describes="1,000 members join one group of the consumer protocol, and their heartbeats",
    run=_consumer_groups,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="joins: 0.1 ms of Python for each heartbeat; heartbeats: the driver, 30 to 45 us each",
)
