"""Quotas that apply to clients of this broker: how long one that has used more than its limit has to wait.

Pure: the time is an argument, in milliseconds of a clock that goes forward. Semantics: KIP-13, 124, 219, 599, 612.
"""

from collections.abc import Mapping
from typing import Final

from kafscale.formats.quota_record import QuotaEntity
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.quota_buckets import MAX_BUCKETS, Buckets
from kafscale.security.quota_limits import AddressLimits, ClientLimits
from kafscale.security.rates import SlidingRate, TokenBucket, Windows

PERCENT_PER_SEC: Final = 100.0
"""Of the one core that the event loop has."""


class RateQuota:
    """A rate for each client: bytes, or the time of requests."""

    def __init__(self, windows: Windows, max_delay_ms: int | None, max_buckets: int) -> None:
        self.limits = ClientLimits()
        self.buckets = Buckets(lambda: SlidingRate(windows), windows.span_ms, max_buckets)
        self._windows = windows
        self._max_delay_ms = max_delay_ms

    @property
    def is_set(self) -> bool:
        """True if there is any limit of this kind."""
        return self.limits.are_any

    def record(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count what was used; returns how many milliseconds the client has to wait."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0
        rate = self.buckets.get(limit, now_ms)
        rate.add(amount, now_ms)
        return self._bounded(rate.delay_ms(limit.rate, now_ms))

    def withhold(self, user: str, client_id: str, amount: float, now_ms: float) -> tuple[int, bool]:
        """The same for what has not been given yet: how long to wait, and whether to give nothing until then.

        What is withheld is not counted. An amount above `most_at_once` is given to a client that is within its
        limit, and paid for by the wait after it: no wait before would help, and it would never get it.
        """
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0, False
        rate = self.buckets.get(limit, now_ms)
        is_within = rate.delay_ms(limit.rate, now_ms) == 0
        rate.add(amount, now_ms)
        delay_ms = self._bounded(rate.delay_ms(limit.rate, now_ms))
        withheld = delay_ms > 0 and not (is_within and amount > self._most_at_once(limit.rate))
        if withheld:
            rate.add(-amount, now_ms)
        return delay_ms, withheld

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """A larger amount is above the limit by itself; None for no limit."""
        limit = self.limits.find(user, client_id)
        return None if limit is None else self._most_at_once(limit.rate)

    def _most_at_once(self, rate: float) -> float:
        return rate * max(1, self._windows.number - 1) * self._windows.size_ms / 1000

    def _bounded(self, delay_ms: int) -> int:
        return delay_ms if self._max_delay_ms is None else min(delay_ms, self._max_delay_ms)


class MutationQuota:
    """Partitions created and deleted by each client (KIP-599)."""

    def __init__(self, windows: Windows, max_buckets: int) -> None:
        self.limits = ClientLimits()
        self.buckets = Buckets(lambda: TokenBucket(windows), windows.span_ms, max_buckets)

    @property
    def is_set(self) -> bool:
        """True if there is any limit of this kind."""
        return self.limits.are_any

    def delay_ms(self, user: str, client_id: str, now_ms: float) -> int:
        """How long the client has to wait for what it has used so far."""
        limit = self.limits.find(user, client_id)
        return 0 if limit is None else self.buckets.get(limit, now_ms).delay_ms(limit.rate, now_ms)

    def take(self, user: str, client_id: str, amount: float, now_ms: float) -> None:
        """Count what is used; a negative amount gives back."""
        limit = self.limits.find(user, client_id)
        if limit is not None:
            self.buckets.get(limit, now_ms).take(amount, limit.rate, now_ms)


class ConnectionQuota:
    """New connections of each address (KIP-612)."""

    def __init__(self, windows: Windows, max_buckets: int) -> None:
        self.limits = AddressLimits()
        self.buckets = Buckets(lambda: SlidingRate(windows), windows.span_ms, max_buckets)
        self._max_delay_ms = windows.size_ms

    @property
    def is_set(self) -> bool:
        """True if there is any limit."""
        return self.limits.are_any

    def record(self, address: str, share: str, now_ms: float) -> int:
        """Count a connection; returns how long to wait before it is closed, 0 for one that is accepted.

        `share`: the addresses that one client may have, as of an IPv6 network. One that is closed does not count.
        """
        limit = self.limits.find(address, share)
        if limit is None:
            return 0
        rate = self.buckets.get(limit, now_ms)
        rate.add(1, now_ms)
        delay_ms = min(self._max_delay_ms, rate.delay_ms(limit.rate, now_ms))
        if delay_ms > 0:
            rate.add(-1, now_ms)
        return delay_ms


class ClientQuotas:
    """All kinds. `are_any`: a quota of users or client ids is set, so that requests must be measured."""

    def __init__(self, windows: Windows, max_buckets: int = MAX_BUCKETS) -> None:
        self.produce = RateQuota(windows, None, max_buckets)
        self.fetch = RateQuota(windows, None, max_buckets)
        self.request = RateQuota(windows, windows.size_ms, max_buckets)
        self.mutation = MutationQuota(windows, max_buckets)
        self.connection = ConnectionQuota(windows, max_buckets)
        self.are_any = False
        self._of_clients: Mapping[QuotaKind, RateQuota | MutationQuota] = {
            QuotaKind.PRODUCE: self.produce,
            QuotaKind.FETCH: self.fetch,
            QuotaKind.REQUEST: self.request,
            QuotaKind.MUTATION: self.mutation,
        }

    def set(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Set all quotas of an entity, none for an empty mapping. What was used so far counts on."""
        if entity.ip is not None:
            self.connection.limits.set(entity, quotas.get(QuotaKind.CONNECTION))
            return
        for kind, quota in self._of_clients.items():
            quota.limits.set(entity, quotas.get(kind))
            if not quota.is_set:
                quota.buckets.clear()
        self.are_any = any(quota.is_set for quota in self._of_clients.values())

    def bucket_counts(self) -> Mapping[QuotaKind, int]:
        """How many clients are measured, by kind of quota. For any thread."""
        counts = {kind: len(quota.buckets) for kind, quota in self._of_clients.items()}
        return counts | {QuotaKind.CONNECTION: len(self.connection.buckets)}
