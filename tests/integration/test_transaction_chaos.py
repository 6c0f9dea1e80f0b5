"""Transactions of both protocols while brokers, etcd and S3 are in trouble: all of each, or nothing, and once.

KAFSCALE_TEST_CLUSTER_SECONDS sets how long the trouble goes on (default 3), KAFSCALE_TEST_SEED repeats a run's
choices. `make transaction-chaos` takes ten minutes.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.test_cluster_chaos import ALL, LONG_S, MISSING, PAUSES, SECONDS, chaos_run
from tests.support import wire
from tests.support.cluster import Cluster
from tests.support.cluster_chaos import END_TIMEOUT_S, TOPIC
from tests.support.ledger import Place
from tests.support.nemesis import etcd_away, kill
from tests.support.transaction_chaos import committed_position, wait_until_nothing_is_open
from tests.support.transaction_checker import examine_transactions
from tests.support.transaction_history import TransactionHistory
from tests.support.transaction_load import (
    CommittedFollower,
    LibrdkafkaJob,
    TransactionalJob,
    WireJob,
    read_committed,
)
from tests.support.waiting import NotInTimeError, wait_until

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


def jobs_that_do_not_go_on(jobs: Sequence[TransactionalJob]) -> list[str]:
    """The jobs that commit nothing in the time that any transaction and its time-out takes."""
    before = {job.name: job.committed for job in jobs}

    def waiting() -> list[str]:
        return [job.name for job in jobs if job.committed == before[job.name]]

    with contextlib.suppress(NotInTimeError):
        wait_until(lambda: not waiting(), "every job goes on", END_TIMEOUT_S)
    return waiting()


def print_logs(cluster: Cluster) -> None:
    """Every batch that transactions wrote, with its producer and what ended it: to find the cause of an anomaly."""
    for topic, index in OUTPUTS:
        broker = cluster.brokers[cluster.leaders(topic)[index]]
        offset = 0
        with wire.connect(broker) as connection:
            while True:
                part = wire.fetch(connection, topic, {index: offset}, max_wait_ms=0)[index]
                if not part.records:
                    break
                for batch in wire.batches_in(part.records):
                    records = [(one.offset, one.key, one.value) for one in batch]
                    print(
                        topic, index, batch.producer_id, batch.producer_epoch, batch.is_control_batch, records
                    )
                    offset = batch.next_offset


def test_transactions_are_all_or_nothing(tmp_path: Path) -> None:
    troubles = ALL if SECONDS >= LONG_S else (kill, *PAUSES, etcd_away)
    with chaos_run(tmp_path, "transactions") as (run, _):
        history = TransactionHistory()
        run.start_producer()
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
            stuck = jobs_that_do_not_go_on(jobs)
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                if worker.started:
                    worker.join(END_TIMEOUT_S)
        # What vanished is aborted when its time is over: nobody waits for longer.
        wait_until_nothing_is_open(run.cluster, OUTPUTS)
        final = read_committed(run.cluster, OUTPUTS)
        inputs = {job.place: run.cluster.read_all(job.source) for job in jobs}
        positions = {job.place: committed_position(run.cluster, job.name, job.source) for job in jobs}
        print(f"troubles: {done}, committed: { {job.name: job.committed for job in jobs} }")
        report = examine_transactions(history.evidence(final, inputs, positions))
        print(report.table())
        if report.anomalies:
            print_logs(run.cluster)
        report.check()
        assert stuck == []
        run.finish().check()
