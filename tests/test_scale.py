"""The arithmetic of docs/scale.md: what follows from its figures, and what it takes from the code."""

import asyncio
import dataclasses

import pytest

from kafscale.cluster import registration
from kafscale.cluster.claims import Claim, Claims
from kafscale.cluster.new_topic import MAX_PARTITIONS
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.memory_store import MemoryStore
from kafscale.ops.metrics import Metrics
from scripts import scale
from scripts.scale import HUNDRED_BROKERS, MANY_BUSY, MEASURED, ONE_GB, Load
from tests.support.waiting import PATIENCE_SEC

_RECORD = b"record"


async def test_a_takeover_takes_the_transactions_that_the_model_counts() -> None:
    counted = Metrics()
    store = MeasuredMetadataStore(MemoryStore(), counted)
    lease = await store.grant_lease(10)
    claims = Claims(store, lambda: lease, lambda key, value: (_RECORD, b"holder"), 0.1)
    of_one_broker = 1_000 // 3
    asked = [Claim(f"partitions/orders/{one}", f"leaders/orders/{one}") for one in range(of_one_broker)]
    async with asyncio.timeout(PATIENCE_SEC):
        gained = await claims.claim(asked, known={})  # read at once, as `Leadership` does for many
    assert len(gained) == of_one_broker
    transactions = sum(counted.metadata_store("transact").duration.counts)
    assert transactions == scale.claim_transactions(1_000, 3)


def test_what_is_taken_from_the_code_is_as_the_code_has_it() -> None:
    assert scale.RENEWALS_PER_TTL == registration._RENEWALS_PER_TTL
    assert MAX_PARTITIONS == 10_000, "docs/scale.md says so"


def test_flushes_cost_more_in_many_partitions_and_bytes_do_not() -> None:
    few = Load(name="", gb_per_sec=1, partitions=100, busy=100, brokers=3)
    many = dataclasses.replace(few, partitions=10_000, busy=10_000)
    assert scale.byte_cores(few) == scale.byte_cores(many) == pytest.approx(2.0 + 2 * 0.37)
    assert few.flushes_per_sec == pytest.approx(1e9 / (4 << 20))  # segments are full before the interval ends
    assert many.flushes_per_sec == pytest.approx(10_000 / 0.6)
    assert scale.flush_cores(many) / scale.flush_cores(few) == pytest.approx(69.9, rel=0.01)


def test_a_longer_interval_makes_fewer_flushes() -> None:
    seldom = dataclasses.replace(HUNDRED_BROKERS, flush_interval_ms=5_000)
    assert seldom.flushes_per_sec < HUNDRED_BROKERS.flushes_per_sec / 8
    assert seldom.dollars_a_month < HUNDRED_BROKERS.dollars_a_month / 8
    assert seldom.etcd_bytes() < HUNDRED_BROKERS.etcd_bytes() / 8


def test_what_is_past_a_limit_is_bold() -> None:
    rows = {name: shares for name, *shares in scale.target_rows()}
    first = rows["transactions of one etcd"]
    names = [load.name for load in scale.TARGETS]
    bold = {name for name, share in zip(names, first, strict=True) if share.startswith("**")}
    assert bold == {HUNDRED_BROKERS.name, MANY_BUSY.name}
    assert first[0] == f"{ONE_GB.flushes_per_sec / MEASURED.etcd_transactions_per_sec * 100:.0f} %"


def test_other_figures_give_other_answers() -> None:
    dearer = dataclasses.replace(MEASURED, flush_cpu_ms=MEASURED.flush_cpu_ms * 2)
    assert scale.brokers_needed(ONE_GB, dearer) > 1.5 * scale.brokers_needed(ONE_GB)
    quicker = dataclasses.replace(MEASURED, preferred_cpu_us_per_ranked_partition=0.0)
    assert scale.preferred_sec(100_000, 100) == pytest.approx(0.26)
    assert scale.held_up_sec(100_000, 100) == pytest.approx(0.026)
    assert scale.preferred_sec(100_000, 100, quicker) == 0
    assert scale.preferred_sec(1_000, 3, quicker) == scale.held_up_sec(1_000, 3) == pytest.approx(0.00087)
    deaf = dataclasses.replace(MEASURED, etcd_cpu_us_per_key_and_watcher=0.0)
    assert scale.move_etcd_sec(10_000, 100, deaf) < scale.move_etcd_sec(10_000, 100)
