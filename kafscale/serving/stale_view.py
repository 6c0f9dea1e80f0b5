"""Sends consumers to another broker while this broker's view of the cluster is stale.

A broker that alone is cut off from the metadata store learns of no publication and of no leader. Records published
before stay readable here, but a consumer at their end would wait for records that another broker publishes. For
liveness only: the store decides what this broker may write and acknowledge (docs/decisions/0047-stale-views.md).
"""

from collections.abc import Callable
from typing import Final

from kafscale.metadata.store_contact import StoreContact
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics
from kafscale.serving.metadata_brokers import MetadataBrokers

LEAST_WAIT_MS: Final = 200
"""A fetch refused for a stale view takes at least so long, so that its client does not ask in a tight loop."""


class StaleView:
    """Of one broker. `end_waiting` answers all fetches that wait for records; some may wait for long."""

    def __init__(
        self, contact: StoreContact, metadata_brokers: MetadataBrokers, end_waiting: Callable[[], None]
    ) -> None:
        self._contact = contact
        self._metadata_brokers = metadata_brokers
        self._end_waiting = end_waiting
        self._ended_waiting_at: int | None = None

    def look(self) -> None:
        """The store has not answered: once in a silence that lasts, end the waits of fetches."""
        silent_since_ms = self._contact.answered_ms
        if self._ended_waiting_at != silent_since_ms and self.sends_away():
            self._ended_waiting_at = silent_since_ms
            self._end_waiting()

    def sends_away(self) -> bool:
        """True if consumers should look for another broker; there is at least one."""
        return self._contact.is_lost and len(self._metadata_brokers.brokers()) > 1

    def began_before(self, connected_for_ms: int) -> bool:
        """True if the store fell silent while a connection of this age was open."""
        return connected_for_ms > self._contact.silent_ms

    def warning(self) -> str | None:
        """The line of `/readyz` meanwhile; may be called in any thread."""
        if not self._contact.is_lost:
            return None
        silent_sec = self._contact.silent_ms // 1000
        return f"silent for {silent_sec} s: what this broker knows of the cluster is as old as that"

    def register_gauge(self, metrics: Metrics) -> None:
        """Export how old the view may be."""
        metrics.gauge(metric_families.METADATA_STORE_SILENT, lambda: self._contact.silent_ms / 1000)
