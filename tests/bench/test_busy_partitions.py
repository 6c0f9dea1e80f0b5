"""The measurement of many busy partitions: what it counts has happened, and a refused record ends it."""

import time
from pathlib import Path

import pytest

from bench.busy_partitions import Rounds, counts, measured, running
from bench.kafscale_broker import Kafscale
from bench.wire import WireError

PARTITIONS = 501  # one more than a request has


@pytest.mark.nightly
def test_every_round_is_a_slice_of_every_partition(tmp_path: Path) -> None:
    with running({}, tmp_path) as (broker, etcd), broker.client() as client:
        client.create_topic("busy", PARTITIONS)
        before = counts(broker, etcd)
        sent = Rounds(client, "busy", range(PARTITIONS)).send(per_sec=4, seconds=1)
        after = counts(broker, etcd)
        ends = [client.log_end_offset("busy", index) for index in range(PARTITIONS)]
        # Once they were of last year, and what was counted was their expiry.
        assert client.offset_at("busy", 0, time.time_ns() // 1_000_000 - 3_600_000) == 0
        client.create_topic("another", 1)
        later = counts(broker, etcd)
    assert ends == [sent] * PARTITIONS
    assert after.slices - before.slices == sent * PARTITIONS
    assert 1 <= after.flushes - before.flushes <= after.puts - before.puts
    assert later.etcd_writes > after.etcd_writes
    found = measured(before, after, sent)
    assert found["slices/s"] == pytest.approx(PARTITIONS * found["rounds/s"])
    assert found["cores"] > 0


@pytest.mark.nightly
def test_a_refused_record_ends_the_measurement(tmp_path: Path) -> None:
    broker = Kafscale(tmp_path)
    broker.start()
    try:
        with broker.client() as client:
            client.create_topic("busy", 3)
            with pytest.raises(WireError, match="error code"):
                Rounds(client, "busy", range(4)).send(per_sec=4, seconds=1)
    finally:
        broker.remove()
