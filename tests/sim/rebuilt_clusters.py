"""A rebuild of a simulated bucket, compared with what was committed there."""

import asyncio

from kafscale.clocks import now_ms
from kafscale.objects.memory_store import MemoryStore
from kafscale.tools.recovery.plan import PartitionPlan
from kafscale.tools.recovery.rebuild import plan_rebuild
from tests.sim.broker_cluster import SimulatedCluster
from tests.sim.invariants import NAMESPACE
from tests.sim.published_log import PublishedLog
from tests.tools.recovery.recovery_bucket import Silence


def mistakes_of_a_rebuild(cluster: SimulatedCluster) -> list[str]:
    """The records that a rebuild of the bucket loses or invents, as it lies there now."""
    store = MemoryStore(now_ms)
    store._objects = dict(cluster.bucket._objects)
    plan = asyncio.run(plan_rebuild(store, NAMESPACE, concurrency=4, progress=Silence()))
    planned = {(topic.name, one.partition): one for topic in plan.topics for one in topic.partitions}
    found = [f"{topic.name}: {topic.problem}" for topic in plan.topics if topic.problem]
    for place, log in cluster.invariants.logs.items():
        found += _compare(log, planned.get(place))
    return found


def _compare(log: PublishedLog, plan: PartitionPlan | None) -> list[str]:
    kept = [offset for offset in log.offsets if offset >= log.record.log_start_offset]
    if plan is None:
        return [f"{log}: nothing is rebuilt of {len(kept)} records"] if kept else []
    found = []
    if plan.record.log_end_offset != log.end_offset and kept:
        found.append(f"{log}: the end is {plan.record.log_end_offset}, committed is {log.end_offset}")
    # Among deleted records, of which a checkpoint may name some still, a hole is no loss.
    holes = [hole for hole in plan.holes if hole.last_offset >= log.record.log_start_offset]
    if holes or plan.damaged or plan.problems:
        found.append(f"{log}: {holes} {plan.damaged} {plan.problems}")
    named = plan.record.segments
    missing = [
        offset for offset in kept if not any(one.base_offset <= offset <= one.last_offset for one in named)
    ]
    if missing and not plan.checkpoint_data:
        found.append(f"{log}: {missing} are not in the rebuilt record")
    return found
