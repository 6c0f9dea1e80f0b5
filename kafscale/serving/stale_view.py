"""Sends consumers to another broker while this broker's view of the cluster is stale.

A broker that alone is cut off from the metadata store learns of no publication and of no leader. Records published
before stay readable here, but a consumer at their end would wait for records that another broker publishes. A leader
whose journal goes on is an exception: no other broker leads before it has ended the journal. For liveness only: the
stores decide what this broker may write and acknowledge (docs/decisions/0047-stale-views.md).
"""

from collections.abc import Callable, Iterable
from typing import Final

from kafscale.log.partition import Partition
from kafscale.metadata.store_contact import StoreContact
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics
from kafscale.serving.metadata_brokers import MetadataBrokers

LEAST_WAIT_MS: Final = 200
"""A fetch refused for a stale view takes at least so long, so that its client does not ask in a tight loop."""


class StaleView:
    """Of one broker. `unended_ms`: see `JournalWriter`, of the journal that it leads with.

    `end_waiting` answers all fetches that wait for records; some may wait for long.
    """

    def __init__(
        self,
        contact: StoreContact,
        metadata_brokers: MetadataBrokers,
        unended_ms: Callable[[], int | None],
        end_waiting: Callable[[], None],
    ) -> None:
        self._contact = contact
        self._metadata_brokers = metadata_brokers
        self._unended_ms = unended_ms
        self._end_waiting = end_waiting
        self._silent_since_ms: int | None = None
        self._silent_journal_ms: int | None = None

    def look(self) -> None:
        """The store has not answered: once in a silence that lasts, end the waits of fetches.

        Once more when no entry was committed for as long: those at leaders went on until then.
        """
        if not self.sends_away():
            return
        silent_since_ms, journal_ms = self._contact.answered_ms, self._unended_ms()
        if journal_ms is None or self._contact.is_recent(journal_ms):
            journal_ms = self._silent_journal_ms
        if (silent_since_ms, journal_ms) != (self._silent_since_ms, self._silent_journal_ms):
            self._silent_since_ms, self._silent_journal_ms = silent_since_ms, journal_ms
            self._end_waiting()

    def sends_away(self) -> bool:
        """True if consumers should look for another broker, unless they read here what goes on; there is one."""
        return self._contact.is_lost and len(self._metadata_brokers.brokers()) > 1

    def sends_away_from(self, partitions: Iterable[Partition]) -> bool:
        """True if waiters for records of these partitions should look for another broker."""
        return self.sends_away() and not all(map(self._goes_on, partitions))

    def _goes_on(self, partition: Partition) -> bool:
        """True if this broker led the partition a moment ago, whatever the metadata store says by now."""
        unended_ms = None if partition.journal is None else partition.journal.writer.unended_ms
        return partition.is_led and unended_ms is not None and self._contact.is_recent(unended_ms)

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
