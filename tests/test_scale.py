"""The arithmetic of docs/scale.md: what follows from its figures, and what it takes from the code."""

import asyncio
import dataclasses

import pytest

from kafscale.cluster import registration
from kafscale.cluster.claim_attempt import Claim
from kafscale.cluster.claims import Claims
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
    claims = Claims(store, lambda: lease, lambda key, value, ground: (_RECORD, b"holder"), 0.1)
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


def test_slices_cost_more_in_many_partitions_and_bytes_do_not() -> None:
    few = Load(name="", gb_per_sec=1, partitions=100, busy=100, brokers=3)
    many = dataclasses.replace(few, partitions=10_000, busy=10_000)
    assert scale.byte_cores(few) == scale.byte_cores(many) == pytest.approx(2.0 + 2 * 0.37)
    assert few.entries_per_sec == many.entries_per_sec == pytest.approx(1e9 / (8 << 20))  # entries are full
    assert many.slices_per_sec == pytest.approx(100 * few.slices_per_sec)
    assert scale.flush_cores(many) > 10 * scale.flush_cores(few)


def test_longer_interval_saves_nothing_below_the_budget() -> None:
    seldom = dataclasses.replace(HUNDRED_BROKERS, flush_interval_ms=5_000)
    assert seldom.entries_per_sec == HUNDRED_BROKERS.entries_per_sec == 400


def test_etcd_pays_for_partitions_once_a_minute() -> None:
    many = dataclasses.replace(ONE_GB, partitions=10_000, busy=10_000)
    assert ONE_GB.etcd_share(MEASURED) < many.etcd_share(MEASURED) < 5 * ONE_GB.etcd_share(MEASURED)
    assert many.etcd_bytes() == pytest.approx(10 * ONE_GB.etcd_bytes())


def test_what_is_past_a_limit_is_bold() -> None:
    rows = {name: shares for name, *shares in scale.target_rows()}
    assert not any("**" in share for shares in rows.values() for share in shares)
    assert scale._percent(1.01) == "**101 %**"
    assert rows["one etcd's transactions"][0] == f"{ONE_GB.etcd_share(MEASURED) * 100:.0f} %"


def test_other_figures_give_other_answers() -> None:
    dearer = dataclasses.replace(MEASURED, slice_cpu_ms=MEASURED.slice_cpu_ms * 2)
    assert scale.brokers_needed(MANY_BUSY, dearer) > 1.5 * scale.brokers_needed(MANY_BUSY)
    quicker = dataclasses.replace(MEASURED, preferred_cpu_us_per_ranked_partition=0.0)
    assert scale.preferred_sec(100_000, 100) == pytest.approx(0.26)
    assert scale.held_up_sec(100_000, 100) == pytest.approx(0.026)
    assert scale.preferred_sec(100_000, 100, quicker) == 0
    assert scale.preferred_sec(1_000, 3, quicker) == scale.held_up_sec(1_000, 3) == pytest.approx(0.00087)
    deaf = dataclasses.replace(MEASURED, etcd_cpu_us_per_key_and_watcher=0.0)
    assert scale.move_etcd_sec(10_000, 100, deaf) < scale.move_etcd_sec(10_000, 100)
