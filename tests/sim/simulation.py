"""One run of a simulated cluster from its seed to its verdict.

    python -m tests.sim.simulation SEED [KIND ...]

prints everything that happened in the run of a seed, with these kinds of trouble or those that its plan has.
"""

import asyncio
import dataclasses
import random
import sys
from dataclasses import dataclass, field
from typing import Any

from kafscale.cluster.preferred import preferred_brokers
from kafscale.formats.topic_record import decode_leader_record
from kafscale.metadata import keys
from tests.sim.broker_cluster import OUTPUT, Plan, SimulatedCluster, errors_logged
from tests.sim.cluster_troubles import Troubles
from tests.sim.process_loop import end_everything, run_simulation, what_tasks_wait_for
from tests.sim.simulated_broker import simulated_surroundings
from tests.sim.trace import Trace
from tests.sim.transaction_verdict import judge_transactions, unsettled_transactions
from tests.support.history_checker import examine
from tests.support.transaction_checker import Outcome

GROUP_SHARDS = 3
# Longer than everything that brokers wait for, grace periods included.
SETTLING_SEC = 240
SECONDS_IN_ALL = 1200


@dataclass(slots=True)
class Verdict:
    """The outcome of a run. `mistake` is None when all is as promised."""

    seed: int
    trace: Trace
    mistake: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    special_kinds: tuple[str, ...] = ()
    cluster: SimulatedCluster | None = None

    def report(self) -> str:
        """A mistake, what led there, and how to see it again."""
        kinds = "".join(f" '{kind}'" for kind in self.special_kinds)
        again = f"Everything that happened: python -m tests.sim.simulation {self.seed}{kinds}"
        if not kinds:
            again += (
                f"\nAgain: KAFSCALE_TEST_SEED={self.seed} pytest tests/sim/test_broker_cluster.py -k one_seed"
            )
        return f"seed {self.seed}: {self.mistake}\n{self.trace.text()}\n{again}"


def simulate(seed: int, **special: Any) -> Verdict:
    """Run the seed, with something special about its plan. The same gives the same run, in any process."""
    rng = random.Random(seed)
    plan = dataclasses.replace(Plan.of(rng), **special).fresh()
    with (
        simulated_surroundings(
            checkpoint_segments=plan.checkpoint_segments,
            superseded_grace_ms=plan.superseded_grace_ms,
            removal_grace_sec=plan.removal_grace,
            group_shards=GROUP_SHARDS,
            transactions_at_once=plan.transactions_at_once,
            paces_flushes=plan.paces_flushes or plan.flush_interval_ms > 0,
        ),
        errors_logged() as error_log,
    ):

        async def run() -> Verdict:
            cluster = SimulatedCluster(rng, plan, error_log)
            return await _run(seed, cluster)

        verdict = run_simulation(run())
    verdict.special_kinds = special.get("kinds", ())
    return verdict


async def _run(seed: int, cluster: SimulatedCluster) -> Verdict:
    script = asyncio.create_task(_script(cluster), name="script")
    script.add_done_callback(lambda done: _script_ended(cluster, done))
    ends: tuple[asyncio.Future[Any], ...] = (script, cluster.failed)
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED, timeout=SECONDS_IN_ALL)
    if not script.done() and not cluster.failed.done():
        cluster.fail(f"nothing came of it in {SECONDS_IN_ALL} s")
    mistake = cluster.failed.result() if cluster.failed.done() else None
    trace = Trace()
    trace.events = list(cluster.trace.events)
    tasks = what_tasks_wait_for() if mistake is not None else []
    cluster.end()
    await end_everything()
    counts = {
        "events": len(trace.events),
        "brokers": len(cluster.all_brokers),
        "acknowledged": cluster.history.count(),
        "published": sum(len(log.offsets) for log in cluster.invariants.logs.values()),
        "deletions": sum(log.deletions for log in cluster.invariants.logs.values()),
        "compactions": sum(log.compactions for log in cluster.invariants.logs.values()),
        "merges": sum(log.merges for log in cluster.invariants.logs.values()),
        "shared records": cluster.metadata.shared_records,
        "partly failed": cluster.metadata.partly_failed,
        "committed": cluster.transactions.count(Outcome.COMMITTED),
        "aborted": cluster.transactions.count(Outcome.ABORTED),
        "instances": sum(job.instances for job in cluster.jobs),
        "claims": sum(len(log.claimed_by) for log in cluster.invariants.logs.values()),
    }
    return Verdict(seed, trace, mistake, counts, tasks, cluster=cluster)


def _script_ended(cluster: SimulatedCluster, script: "asyncio.Task[None]") -> None:
    if not script.cancelled() and (problem := script.exception()) is not None:
        cluster.fail(f"the run itself: {problem!r}")


async def _script(cluster: SimulatedCluster) -> None:
    plan, rng = cluster.plan, cluster.rng
    for name, count in plan.topics.items():
        cluster.create_topic(name, count)
    for broker_id in range(plan.brokers):
        cluster.start_broker(broker_id)
    cluster.start_clients()
    await asyncio.sleep(rng.random() * 2)
    troubles = Troubles(cluster)
    await troubles.run()
    cluster.heal()
    await _settle(cluster, troubles)
    for task in cluster.tasks:
        task.cancel()
    await asyncio.gather(*cluster.tasks, return_exceptions=True)
    _judge(cluster)
    if plan.stops_well:
        await _stop_all(cluster)
        _judge(cluster)


async def _settle(cluster: SimulatedCluster, troubles: Troubles) -> None:
    loop = asyncio.get_running_loop()
    give_up_sec = loop.time() + SETTLING_SEC
    ending = asyncio.create_task(troubles.end())
    while True:
        await asyncio.sleep(0.25)
        reasons = _unsettled(cluster) if ending.done() else ["trouble goes on"]
        if not reasons:
            return
        if loop.time() > give_up_sec:
            cluster.fail(
                f"not settled {SETTLING_SEC} s after everything was well again: {'; '.join(reasons)}"
            )
            return


def _unsettled(cluster: SimulatedCluster) -> list[str]:
    reasons = [f"{broker.name} is not up" for broker in cluster.brokers.values() if not broker.is_up]
    for log in cluster.invariants.logs.values():
        reasons += _unled(cluster, log.name, log.index)
    coordinated = len(cluster.metadata.everything(keys.COORDINATORS).items)
    if coordinated != GROUP_SHARDS:
        reasons.append(f"{coordinated} group shards have a coordinator")
    reasons += [
        f"{producer.name} has {producer.unfinished} batches to go"
        for producer in cluster.producers
        if producer.unfinished
    ]
    reasons += [
        f"{consumer.name} is at {consumer.position}, the end is {consumer.log.end_offset}"
        for consumer in cluster.consumers
        if not consumer.log.is_deleted and consumer.position < consumer.log.end_offset
    ]
    return reasons + unsettled_transactions(cluster)


def _unled(cluster: SimulatedCluster, name: str, index: int) -> list[str]:
    """The fault of a partition's leader: there is one, the right one, and it knows."""
    running = sorted(broker.broker_id for broker in cluster.living())
    topic = cluster.topic(name)
    if topic is None:
        return [f"{name} is not there"]
    right = preferred_brokers(name, topic.partition_count, running)[index]
    leading = [
        broker.broker_id
        for broker in cluster.brokers_up()
        if (led := broker.logs.partition(name, index)) is not None and led.is_led
    ]
    if leading != [right]:
        return [f"{name}-{index} is led by {leading}, should be by {right}"]
    found = cluster.metadata.now(keys.leader(name, index))
    if found is None or decode_leader_record(found.key, found.value).broker_id != right:
        return [f"the leader of {name}-{index} is stored as {found}"]
    return []


def _judge(cluster: SimulatedCluster) -> None:
    """The stores compared with the answers that clients got and the records that they saw."""
    cluster.invariants.check_end()
    judge_transactions(cluster)
    # What transactions write has a checker of its own.
    logs = [log for log in cluster.invariants.logs.values() if log.name != OUTPUT]
    final = {log.place: list(log.records()) for log in logs}
    evidence = cluster.history.evidence(final)
    report = examine(
        dataclasses.replace(
            evidence,
            # What was promised of a topic went with it.
            acknowledged=[one for one in evidence.acknowledged if (one.topic, one.partition) in final],
            runs=[run for run in evidence.runs if run.place in final],
        )
    )
    if report.violations:
        cluster.fail(report.table())


async def _stop_all(cluster: SimulatedCluster) -> None:
    """With nothing in the way, every broker ends well."""
    for broker in cluster.living():
        broker.stop()
    ended = [broker.ended for broker in cluster.living()]
    await asyncio.wait(ended, timeout=60)
    for broker in cluster.brokers.values():
        if not broker.ended.done() or broker.ended.result() != "ended with status 0":
            how = broker.ended.result() if broker.ended.done() else "does not end"
            cluster.fail(f"{broker.name} was asked to stop with nothing in the way: {how}")
    left = cluster.metadata.everything(keys.BROKERS).items
    if left:
        cluster.fail(f"brokers that have ended are registered: {left}")


def main() -> None:
    """See the module."""
    seed, *kinds = sys.argv[1:]
    verdict = simulate(int(seed), **({"kinds": tuple(kinds)} if kinds else {}))
    print(verdict.trace.text(last=len(verdict.trace.events)))
    print(*verdict.tasks, sep="\n")
    print(verdict.counts)
    print(f"seed {verdict.seed}: {verdict.mistake or 'all is as promised'}")


if __name__ == "__main__":
    main()
