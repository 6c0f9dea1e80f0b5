"""Many connections, and many idle long polls on many partitions: memory, and CPU while nothing happens."""

import time
from functools import partial

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import Polled, PollsSpec
from bench.workloads.driving import drive
from bench.workloads.standing import serves
from bench.workloads.topics import PARTITIONS_OF_A_TOPIC, new_topics
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_BYTES_PER_KB = 1e3


def polls_row(connections: int, max_wait_ms: int, partitions: int) -> str:
    """The name of a row of idle long polls."""
    return f"{connections:,} idle long polls of {max_wait_ms / 1000:g} s, {partitions:,} partitions"


def _connections(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        topics = new_topics(broker, plan.connection_partitions)
        broker.stop()
        broker.start(partial(serves, topics, plan.connection_partitions))
        time.sleep(plan.settle_seconds)
        name = f"{plan.connections:,} idle connections, {plan.connection_partitions:,} partitions"
        idle = drive(_spec(broker, plan, topics, 0), Polled)
        held = idle.resident_bytes_after - idle.resident_bytes_before
        yield name, "resident KB/connection", held / plan.connections / _BYTES_PER_KB
        yield name, "% of a core", idle.window.broker_seconds / idle.window.seconds * 100
        for max_wait_ms in plan.poll_waits_ms:
            polled = drive(_spec(broker, plan, topics, max_wait_ms), Polled)
            yield from _polled(polls_row(plan.connections, max_wait_ms, plan.connection_partitions), polled)


def _polled(name: str, polled: Polled) -> Values:
    window = polled.window
    yield name, "% of a core", window.broker_seconds / window.seconds * 100
    yield name, "polls answered/s", window.records / window.seconds
    if window.records >= window.seconds:
        yield name, "broker CPU us/poll", window.broker_seconds / window.records * 1e6
    yield name, "resident MB", polled.resident_bytes_after / 1e6
    yield name, "driver cores", window.driver_seconds / window.seconds


def _spec(broker: Broker, plan: Plan, topics: list[str], max_wait_ms: int) -> PollsSpec:
    return PollsSpec(
        host=broker.host,
        port=broker.port,
        connections=plan.connections,
        topics=topics,
        topic_partitions=min(PARTITIONS_OF_A_TOPIC, plan.connection_partitions),
        partitions_each=plan.partitions_of_a_poll,
        max_wait_ms=max_wait_ms,
        seconds=plan.poll_seconds,
        broker_pids=[broker.pid],
    )


def _seconds(plan: Plan) -> float:
    polls = (plan.poll_seconds + 5) * (1 + len(plan.poll_waits_ms))
    return 15 + plan.settle_seconds + 0.002 * plan.connection_partitions + polls


CONNECTIONS = Workload(
    name="connections",
    describes="1,000 connections and idle long polls over 10,000 partitions: memory, CPU at rest",
    run=_connections,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="nothing: the driver answers 50,000 polls a second, 2,000 come",
)
