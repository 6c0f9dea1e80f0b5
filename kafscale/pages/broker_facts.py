"""The facts that a page shows of a broker besides topics and groups: settings, health, gauges of the metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.ops import metric_families as families
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import DAYS_PER_MONTH
from kafscale.pages.figures import Figures, Gauges

SEC_PER_MONTH: Final = DAYS_PER_MONTH * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """The reasons by name: of `/healthz`, of `/readyz`, and the warnings of the latter."""

    liveness_problems: Mapping[str, str]
    readiness_problems: Mapping[str, str]
    warnings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """`records_at`, `metadata_at`: where the stores are, for people. `up_sec`: since the start."""

    health: HealthState
    metrics: Metrics
    gauges: Gauges
    up_sec: float
    lease_ttl_sec: int
    records_at: str
    metadata_at: str

    @property
    def is_priced(self) -> bool:
        """True if requests to the object store cost: it is a bucket."""
        return bool(self.metrics.store_requests)

    @property
    def budget_dollars(self) -> float | None:
        """The budget for a month, of the whole cluster; None without one."""
        return self.gauges.get(families.COST_BUDGET)

    def month_dollars_of(self, figures: Figures, topic: str) -> float | None:
        """The dollars of a topic's requests in a month at the present rate; None if they cost nothing."""
        return figures.rates.topic_dollars.get(topic, 0.0) * SEC_PER_MONTH if self.is_priced else None
