"""The broker that coordinates and leads is killed with -9 at each of its steps in turn: all or nothing, and once."""

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.history import History
from tests.support.killed_broker import KilledBroker
from tests.support.ledger import Place
from tests.support.nightly import by_day
from tests.support.transaction_chaos import committed_position, wait_until_nothing_is_open
from tests.support.transaction_checker import examine_transactions
from tests.support.transaction_history import TransactionHistory
from tests.support.transaction_load import WireJob, read_committed
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.wire import batch, connect, produce

SOURCE: Place = ("in", 0)
OUTPUTS: list[Place] = [("out", 0), ("out", 1)]
STEPS = 24
"""More than two transactions take."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_transactions_survive_a_kill_at_each_step(tmp_path: Path, moment: str) -> None:
    cluster = Cluster(tmp_path, None, brokers=1, make_broker=KilledBroker, flush_interval_ms=0)
    broker = cluster.brokers[1]
    assert isinstance(broker, KilledBroker)
    ledger, history = History(), TransactionHistory()
    try:
        cluster.start()
        cluster.create_topic(SOURCE[0], 1)
        cluster.create_topic("out", len(OUTPUTS))
        with connect(broker) as connection:
            for hundred in range(10):
                values = [b"%d" % number for number in range(100 * hundred, 100 * hundred + 100)]
                assert produce(connection, *SOURCE, batch(values)).error_code == 0
        cluster.stop(1)
        job = WireJob("x", cluster, SOURCE, OUTPUTS, ledger, history, seed=1)
        steps = range(1, by_day(STEPS, by_night=2 * STEPS))
        cluster.start(1)
        job.start()
        for step in steps:
            cluster.stop(1)
            broker.kill_at = (moment, step)
            cluster.launch(1)
            wait_until(lambda: broker.exit_code is not None, f"it dies {moment} step {step}", PATIENCE_SEC)
            assert broker.exit_code == -9, broker.log_tail()
            cluster.kill(1)
            broker.kill_at = None
            committed = job.committed
            cluster.start(1)
            wait_until(lambda: job.committed > committed, f"a commit after step {step}", PATIENCE_SEC)  # noqa: B023
            ledger.check_producers()
        job.stop()
        job.join(PATIENCE_SEC)
        wait_until_nothing_is_open(cluster, OUTPUTS)
        final = read_committed(cluster, OUTPUTS)
        report = examine_transactions(
            history.evidence(
                final,
                {job.place: cluster.read_all(SOURCE)},
                {job.place: committed_position(cluster, job.name, SOURCE)},
            )
        )
        print(report.table())
        report.check()
        ledger.check_producers()
        assert report.counts["committed"] >= len(steps)
        cluster.stop_all()
    finally:
        cluster.close()
