"""Gauges of a broker's journal and of sealing, read at each scrape."""

from collections.abc import Callable

from kafscale.log.journal.broker_journal import BrokerJournals
from kafscale.log.journal.collector import LONGEST_INTERVAL_SEC
from kafscale.log.life.seal_debt import SealDebt
from kafscale.log.partition import Partition
from kafscale.log.writing.flush_pacer import FlushPolicy
from kafscale.ops import journal_metric_families as families
from kafscale.ops.metric_families import FLUSH_BUDGET
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings


def register_journal_gauges(
    metrics: Metrics,
    journals: BrokerJournals,
    debt: SealDebt[Partition],
    settings: Settings,
    policy: FlushPolicy,
    now_sec: Callable[[], float],
) -> None:
    """`now_sec`: the clock of the debt and of `metrics.journal.collected_at_sec`."""
    gauge, max_age_sec = metrics.gauge, settings.seal_max_age_ms / 1000
    interval_sec = min(settings.garbage_check_interval_sec, LONGEST_INTERVAL_SEC)
    gauge(FLUSH_BUDGET, lambda: policy.flushes_per_sec)
    gauge(families.ENTRIES_IN_FLIGHT, lambda: journals.in_flight_count)
    gauge(families.PROGRESS_LAG, lambda: journals.progress_lag)
    gauge(families.STORED_ENTRIES, lambda: journals.stored_count)
    gauge(families.SEAL_DEBT_SLICES, lambda: debt.slices)
    gauge(families.SEAL_DEBT_BYTES, lambda: debt.size_bytes)
    gauge(families.SEAL_DEBT_AGE, lambda: debt.oldest_sec(now_sec()))
    gauge(families.SEAL_LATE, lambda: max(0.0, debt.oldest_sec(now_sec()) - max_age_sec))
    gauge(
        families.COLLECTION_LATE,
        lambda: max(0.0, now_sec() - metrics.journal.collected_at_sec - interval_sec),
    )
