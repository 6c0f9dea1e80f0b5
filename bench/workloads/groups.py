"""A group that rebalances: one new member each time, all others join again at once; and its heartbeats."""

import asyncio
import time
from dataclasses import dataclass

from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import Repeated, RepeatSpec
from bench.wire import encode
from bench.workloads.driving import drive
from bench.workloads.rows import requests
from bench.workloads.workload import Stage, Values, Workload, clients_can_use
from tests.support.group_crowd import CrowdMember, crowd
from tests.support.group_wire import HEARTBEAT_VERSION, NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

_GROUP = "bench"
_SESSION_TIMEOUT_MS = 300_000  # longer than the workload: only the member that is measured needs heartbeats
_ASK_AGAIN_SECONDS = 0.001
_HEARTBEATS_IN_FLIGHT = 100
_FIND_COORDINATOR_VERSION = 2
_COORDINATOR_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rebalance:
    """From the newcomer's first JoinGroup until every member has its assignment."""

    seconds: float
    broker_seconds: float


def _groups(stage: Stage) -> Values:
    with stage.running_broker() as broker:
        yield from asyncio.run(_measure(broker, stage.plan))


async def _measure(broker: Broker, plan: Plan) -> list[tuple[str, str, float]]:
    name = f"rebalance of {plan.group_members} members"
    rows = []
    groups = [_GROUP] * (plan.group_members + plan.group_rebalances)
    async with crowd(broker, groups, session_timeout_ms=_SESSION_TIMEOUT_MS) as crowded:
        members, newcomers = crowded[: plan.group_members], crowded[plan.group_members :]
        await _until_coordinated(newcomers[0])
        begin = time.perf_counter()
        await asyncio.gather(*(member.enter() for member in members))
        rows.append((name, "first, with the initial delay, s", time.perf_counter() - begin))
        for newcomer in newcomers:
            one = await _rebalance(broker, members, newcomer)
            members.append(newcomer)
            rows.append((name, "ms", one.seconds * 1e3))
            rows.append((name, "broker CPU ms", one.broker_seconds * 1e3))
        beats = await asyncio.to_thread(drive, _heartbeats(broker, plan, members[0]), Repeated)
        rows += requests("heartbeats, one connection", beats.window)
    return rows


async def _until_coordinated(member: CrowdMember) -> None:
    """Kafka creates its topic of offsets when the first coordinator is requested."""
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    request = FindCoordinatorRequest(key=member.group, key_type=0)
    await member.call(request, FindCoordinatorResponse, _FIND_COORDINATOR_VERSION)
    while (code := await member.heartbeat()) != UNKNOWN_MEMBER_ID:
        assert time.monotonic() < deadline, f"group {member.group} has no coordinator: error {code}"
        await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _rebalance(broker: Broker, members: list[CrowdMember], newcomer: CrowdMember) -> _Rebalance:
    cpu = broker.cpu()
    begin = time.perf_counter()
    entering = asyncio.create_task(newcomer.enter())
    while (code := await members[0].heartbeat()) != REBALANCE_IN_PROGRESS:
        assert code == NONE, f"heartbeat: error {code}"
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
    await asyncio.gather(*(member.enter() for member in members), entering)
    return _Rebalance(seconds=time.perf_counter() - begin, broker_seconds=broker.cpu() - cpu)


def _heartbeats(broker: Broker, plan: Plan, member: CrowdMember) -> RepeatSpec:
    request = HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.id, group_instance_id=None
    )
    return RepeatSpec(
        host=broker.host,
        port=broker.port,
        frame=encode(request, HEARTBEAT_VERSION, correlation_id=1).hex(),
        in_flight=_HEARTBEATS_IN_FLIGHT,
        warmup_seconds=max(plan.warmup_seconds, plan.jit_warmup_seconds / 2),
        seconds=plan.seconds / 2,
        broker_pids=[broker.pid],
    )


def _seconds(plan: Plan) -> float:
    return 16 + 0.5 * plan.group_rebalances + plan.jit_warmup_seconds / 2 + plan.seconds / 2


GROUPS = Workload(
    name="groups",
    describes="rebalance of a group of 100 members, and heartbeats",
    run=_groups,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="rebalance: the members, in Python, take about 0.3 ms of each; heartbeats: nothing, bytes are counted",
)
