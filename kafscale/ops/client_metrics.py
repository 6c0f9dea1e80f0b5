"""The counters of clients: their connections, logins, refusals and throttle times (see `metrics`)."""

from collections import Counter
from dataclasses import dataclass

from kafscale.ops import client_metric_families as families
from kafscale.ops.counted import counted, counted_by, observed
from kafscale.ops.histogram import Histogram


@dataclass(slots=True, eq=False)
class RefusalMetrics:
    """Refusals to clients of one type of resource, by operation."""

    operations: Counter[str] = counted_by(families.AUTHORIZATION_REFUSALS)


@dataclass(slots=True, eq=False)
class ConnectionMetrics:
    """Kafka clients: add to the attributes, and take from `current` when one leaves."""

    current: int = counted(families.CONNECTIONS)
    accepted: int = counted(families.CONNECTIONS_ACCEPTED)
    rejected: int = counted(families.CONNECTIONS_REJECTED)
    rejected_per_ip: int = counted(families.CONNECTIONS_REJECTED_PER_IP)
    muted: int = counted(families.CONNECTIONS_MUTED)


@dataclass(slots=True, eq=False)
class AuthenticationMetrics:
    """Of one listener: by mechanism, empty where none was named."""

    successful: Counter[str] = counted_by(families.AUTHENTICATIONS_SUCCESSFUL)
    failed: Counter[str] = counted_by(families.AUTHENTICATIONS_FAILED)
    successful_again: Counter[str] = counted_by(families.REAUTHENTICATIONS_SUCCESSFUL)
    failed_again: Counter[str] = counted_by(families.REAUTHENTICATIONS_FAILED)
    expired: int = counted(families.EXPIRED_CONNECTIONS_KILLED)


@dataclass(slots=True, eq=False)
class ThrottleMetrics:
    """The throttle times of one kind of quota."""

    delay: Histogram = observed(families.THROTTLE_TIME)

    def observe(self, seconds: float) -> None:
        """Count one client that has to wait."""
        self.delay.observe(seconds)
