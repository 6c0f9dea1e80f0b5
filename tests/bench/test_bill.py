"""The measurement of a cluster's bill: every partition is written to, and all brokers' requests are counted."""

from pathlib import Path

import pytest

from bench.bill import TOPIC, loads, measured, running
from kafscale.ops.prices import Prices

PARTITIONS = 7


@pytest.mark.nightly
def test_every_request_of_every_broker_is_in_the_bill(tmp_path: Path) -> None:
    with running(2, {}, tmp_path) as brokers, loads(brokers, PARTITIONS) as rounds:
        found = measured(brokers, rounds, per_sec=8, seconds=1)
        written = {}
        for broker in brokers:
            with broker.client() as client:
                led = client.led_partitions(TOPIC)
                ends = [client.log_end_offset(TOPIC, one) for one in led[broker.host, broker.port]]
            written[broker.bootstrap] = sum(ends)
            assert min(ends) == max(ends) > 0
    assert sorted(index for indexes in led.values() for index in indexes) == list(range(PARTITIONS))
    batches = {one.source: one.batches * one.seconds for one in found.brokers}
    assert batches == pytest.approx(written)
    entries = sum(one.entries for one in found.brokers)
    assert found.requests["PutObject"] >= entries > 0
    assert found.request_dollars >= entries * Prices().per_1000_puts / 1000
