"""Transactions of both protocols while brokers, etcd and S3 are in trouble: all of each, or nothing, and once.

KAFSCALE_TEST_CLUSTER_SECONDS sets how long the trouble goes on (default 3), KAFSCALE_TEST_SEED repeats a run's
choices. `make transaction-chaos` takes ten minutes.
"""

from pathlib import Path

import pytest

from tests.integration.test_cluster_chaos import ALL, LONG_S, MISSING, PAUSES, SECONDS, chaos_run
from tests.support import wire
from tests.support.cluster_chaos import END_TIMEOUT_S, TOPIC, ChaosRun
from tests.support.group_apis import committed, find_coordinator
from tests.support.ledger import Place
from tests.support.nemesis import etcd_away, kill
from tests.support.transaction_checker import examine_transactions
from tests.support.transaction_history import TransactionHistory
from tests.support.transaction_load import (
    CommittedFollower,
    LibrdkafkaJob,
    TransactionalJob,
    WireJob,
    read_committed,
)
from tests.support.waiting import PATIENCE_SEC, wait_until

pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(1200 + 4 * SECONDS),
    pytest.mark.nightly,
]

OUTPUT = "out"
OUTPUTS: list[Place] = [(OUTPUT, index) for index in range(3)]
JOBS: dict[str, tuple[type[TransactionalJob], Place]] = {
    "x0": (LibrdkafkaJob, (TOPIC, 0)),
    "x1": (LibrdkafkaJob, (TOPIC, 1)),
    "y0": (WireJob, (TOPIC, 2)),
    "y1": (WireJob, (TOPIC, 3)),
}


def last_stable_offset(run: ChaosRun, place: Place) -> tuple[int, int]:
    """The last stable offset and the log end offset, of the partition's leader."""
    broker = run.cluster.brokers[run.cluster.leaders(place[0])[place[1]]]
    with wire.connect(broker) as connection:
        part = wire.fetch(connection, place[0], {place[1]: 0}, max_wait_ms=0)[place[1]]
    assert part.error_code == 0, part
    return part.last_stable_offset, part.high_watermark


def group_position(run: ChaosRun, group: str, place: Place) -> int:
    """The group's committed offset, once nothing is pending."""
    with wire.connect(run.cluster.any_live()) as connection:
        coordinator = find_coordinator(connection, [group])[group].node_id
    with wire.connect(run.cluster.brokers[coordinator]) as connection:
        return committed(connection, group, [place])[place].offset


def test_transactions_are_all_or_nothing(tmp_path: Path) -> None:
    troubles = ALL if SECONDS >= LONG_S else (kill, *PAUSES, etcd_away)
    with chaos_run(tmp_path, "transactions") as (run, _):
        history = TransactionHistory()
        run.start(direct=False)
        run.cluster.create_topic(OUTPUT, len(OUTPUTS))
        jobs = [
            kind(
                name, run.cluster, source, OUTPUTS, run.history, history, run.scene.generator.randrange(2**32)
            )
            for name, (kind, source) in JOBS.items()
        ]
        follower = CommittedFollower("follower", run.cluster, OUTPUTS, run.history, history)
        workers = (*jobs, follower)
        try:
            for worker in workers:
                worker.start()
            done = run.run(troubles, SECONDS)
            run.cluster.heal()
            run.cluster.wait_until_led(TOPIC, OUTPUT)
            before = {job.name: job.committed for job in jobs}
            wait_until(
                lambda: all(job.committed > before[job.name] for job in jobs),
                "every job goes on",
                END_TIMEOUT_S,
            )
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                if worker.started:
                    worker.join(END_TIMEOUT_S)
        # What vanished is aborted when its time is over: nobody waits for longer.
        for place in OUTPUTS:
            wait_until(
                lambda place=place: len(set(last_stable_offset(run, place))) == 1,  # type: ignore[misc]
                f"nothing is open in {place}",
                PATIENCE_SEC,
            )
        final = read_committed(run.cluster, OUTPUTS)
        inputs = {job.place: run.cluster.read_all(job.source) for job in jobs}
        positions = {job.place: group_position(run, job.name, job.source) for job in jobs}
        print(f"troubles: {done}, committed: { {job.name: job.committed for job in jobs} }")
        report = examine_transactions(history.evidence(final, inputs, positions))
        print(report.table())
        report.check()
        run.finish().check()
